"""What goes wrong while data is staged, each case by its name."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from starlette.responses import RedirectResponse, Response

from pilotage.base import errors
from pilotage.data.transfer import fetch, url
from pilotage.data.transfer.allow import Allowed
from pilotage.data.transfer.courier import Courier
from pilotage.data.transfer.keys import Credentials
from pilotage.data.transfer.kind.http import Http
from pilotage.data.transfer.model import MANIFEST, TransferItem
from pilotage.data.transfer.retrying import RetryPolicy
from pilotage.data.transfer.send import send
from testbed.ssh import keys as keys_of_nobody
from tests.contract.transfer import places
from tests.contract.transfer.places import Place
from tests.rigs.cluster.web import serving

SOON = RetryPolicy(delay=0.05, longest=0.2, attempts=5, deadline=120, glance=0.05)


@pytest.fixture
def dav(tmp_path) -> Iterator[Place]:
    with places.web(tmp_path / "web", dav=True) as place:
        yield place


@pytest.fixture
def here(tmp_path) -> Iterator[Place]:
    with places.file(tmp_path / "file") as place:
        yield place


@pytest.fixture
def small_disk(tmp_path, needs) -> Iterator[Path]:
    """Have a file system with 20 MiB and 200 inodes."""
    needs("root", "mount")
    top = tmp_path / "disk"
    top.mkdir()
    options = ["-o", "size=20m,nr_inodes=200"]
    done = subprocess.run(["mount", "-t", "tmpfs", *options, "none", str(top)], check=False)
    if done.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield top
    finally:
        subprocess.run(["umount", str(top)], check=True)


def until(so) -> None:
    end = time.monotonic() + 60
    while not so():
        assert time.monotonic() < end
        time.sleep(0.01)


def once(status: int, times: int = 1, method: str = "GET"):
    left = [times]

    def fault(request):
        if request.method != method or not left[0]:
            return None
        left[0] -= 1
        return Response(status_code=status)

    return fault


async def test_403_is_permanent_and_asked_once(dav, tmp_path):
    dav.put({"a": b"1"})
    dav.web.faults.append(once(403, times=99))
    with pytest.raises(errors.Denied, match="403"):
        await dav.courier(SOON).fetch(f"{dav.url}/a", str(tmp_path / "in"))
    assert dav.web.calls["GET"] == 1


async def test_5xx_then_ok_is_tried_again(dav, tmp_path):
    dav.put({"a": b"1"})
    dav.web.faults += [once(503, times=2), once(500, method="HEAD")]
    await dav.courier(SOON).fetch(f"{dav.url}/a", str(tmp_path / "in"))
    assert (tmp_path / "in" / "a").read_bytes() == b"1"
    assert dav.web.calls["GET"] == 3


async def test_truncated_answers_are_gone_on_with(dav, tmp_path):
    data = os.urandom(3_000_000)
    dav.put({"a": data})
    dav.web.cut = 1_100_000
    # Each brings something: the number of attempts does not matter then.
    await dav.courier(msgspec.structs.replace(SOON, attempts=1)).fetch(
        f"{dav.url}/a", str(tmp_path / "in")
    )
    assert (tmp_path / "in" / "a").read_bytes() == data
    assert dav.web.calls["GET"] == 3
    assert dav.web.sent < 2 * len(data)


async def test_a_checksum_that_the_server_tells_is_checked(dav, tmp_path):
    dav.put({"a": b"right"})
    dav.web.digests = True
    assert [item.sha256 for item in await dav.courier().look(f"{dav.url}/a")] != [""]
    dav.web.faults.append(lambda r: Response(b"wrong") if r.method == "GET" else None)
    with pytest.raises(errors.Unavailable, match="SHA-256"):
        await dav.courier().fetch(f"{dav.url}/a", str(tmp_path / "in"))
    assert not (tmp_path / "in" / "a").exists()


async def test_a_file_that_changes_between_look_and_fetch_is_noticed(dav, tmp_path):
    dav.put({"a": b"1"})

    def change(request):
        if request.method == "GET":
            (dav.root / "a").write_bytes(b"2")

    dav.web.faults.append(change)
    with pytest.raises(errors.Unavailable, match="changes while it is copied"):
        await dav.courier().fetch(f"{dav.url}/a", str(tmp_path / "in"))


@pytest.mark.parametrize("kind", ["file", "rsync"])
async def test_a_source_that_changes_while_it_is_copied_is_noticed(
    kind, tmp_path, needs, monkeypatch
):
    needs(*places.KINDS[kind][1])
    with places.KINDS[kind][0](tmp_path / kind) as place:
        place.put({"a": b"1" * 1000, "b": b"2"})
        found = await place.courier().look(f"{place.url}/")
        carrier = place.courier()._kind(url.parse(f"{place.url}/"), Credentials())
        real = carrier.fetch

        async def slow(base, items, folder):
            if kind == "file":
                (place.root / "a").write_bytes(b"3" * 1000)
            await real(base, items, folder)
            (place.root / "a").write_bytes(b"3" * 1000)

        monkeypatch.setattr(carrier, "fetch", slow)
        assert found.files == 2
        with pytest.raises(errors.Unavailable, match="changes while it is copied"):
            await fetch.fetch(carrier, url.parse(f"{place.url}/"), str(tmp_path / "in"))


async def test_a_result_that_changes_while_it_is_sent_is_not_published(here, tmp_path, monkeypatch):
    source = tmp_path / "out"
    source.mkdir()
    (source / "a").write_bytes(b"1" * 1000)
    carrier = here.courier()._kind(url.parse(here.url), Credentials())
    real = carrier.send

    async def busy(base, items, folder):
        await real(base, items, folder)
        (source / "a").write_bytes(b"2" * 1000)

    monkeypatch.setattr(carrier, "send", busy)
    with pytest.raises(errors.Unavailable, match="changes while it is copied"):
        await send(carrier, str(source), url.parse(f"{here.url}/run.1"))
    assert not (here.root / "run.1" / MANIFEST).exists()


async def test_a_disk_that_is_too_small_is_seen_before_anything_moves(dav, small_disk):
    dav.put({"a": bytes(30_000_000)})
    with pytest.raises(errors.Unavailable, match="left"):
        await dav.courier().fetch(f"{dav.url}/a", str(small_disk / "in"))
    assert dav.web.calls["GET"] == 0


async def test_a_disk_that_fills_up_on_the_way_is_told_and_nothing_half_is_seen(dav, small_disk):
    data = os.urandom(15_000_000)
    dav.put({"a": data})
    dav.web.lengths = False
    (small_disk / "other").write_bytes(bytes(10_000_000))
    with pytest.raises(errors.Unavailable, match="disk here is full"):
        await dav.courier().fetch(f"{dav.url}/a", str(small_disk / "in"))
    assert not (small_disk / "in" / "a").exists()
    (small_disk / "other").unlink()
    await dav.courier().fetch(f"{dav.url}/a", str(small_disk / "in"))
    assert (small_disk / "in" / "a").read_bytes() == data


async def test_the_end_of_inodes_is_seen_before_anything_moves(here, small_disk):
    here.put({f"f{number}": b"" for number in range(300)})
    with pytest.raises(errors.Unavailable, match="more files"):
        await here.courier().fetch(f"{here.url}/", str(small_disk / "in"))
    assert not list((small_disk / "in").iterdir())


async def test_files_that_may_not_be_read_or_written_are_denied(sshd, tmp_path):
    with places.ssh(sshd, "sftp") as place:
        place.put({"a": b"1"})
        (place.root / "secret").write_bytes(b"root's")
        (place.root / "secret").chmod(0o600)
        with pytest.raises(errors.Denied):
            await place.courier(SOON).fetch(f"{place.url}/secret", str(tmp_path))
        (place.root / "shut").mkdir(mode=0o755)
        with pytest.raises(errors.Denied):
            await place.courier(SOON).send(__file__, f"{place.url}/shut")


async def test_a_key_that_is_not_accepted_is_a_matter_of_credentials(sshd, tmp_path):
    config = tmp_path / "config"
    other = tmp_path / "id"
    keys_of_nobody.make(other)
    lines = [
        f"    IdentityFile {other}" if "IdentityFile" in line else line
        for line in sshd.config.read_text().splitlines()
    ]
    config.write_text("\n".join(lines))
    keys = {"key": Credentials(ssh_config=str(config))}
    may = places.allowed("sftp", hosts=("key", "127.0.0.1"))
    hasty = RetryPolicy(deadline=0.2, glance=0.1)
    courier = Courier(may, keys=keys, patience=hasty, dice=random.Random(1))
    with pytest.raises(errors.NeedsCredential):
        await courier.look("sftp://key/tmp")


@pytest.mark.parametrize("many", [500, pytest.param(5000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", ["file", "rsync", "sftp", "webdav"])
async def test_many_small_files(kind, many, tmp_path, request, needs):
    needs(*places.KINDS[kind][1])
    with contextlib.ExitStack() as stack:
        if kind == "sftp":
            place = stack.enter_context(places.ssh(request.getfixturevalue("sshd"), "sftp"))
        elif kind == "webdav":
            place = stack.enter_context(places.web(tmp_path / kind, dav=True))
        else:
            place = stack.enter_context(places.KINDS[kind][0](tmp_path / kind))
        place.put({f"d{number % 50}/f{number}": b"%d" % number for number in range(many)})
        receipt = await place.courier().fetch(f"{place.url}/", str(tmp_path / "in"))
    assert (receipt.files, receipt.moved) == (many, many)
    found = {int(path.read_bytes()) for path in (tmp_path / "in").rglob("f*")}
    assert found == set(range(many))


async def test_a_large_file_with_holes_keeps_them(here, tmp_path):
    size = 1 << 40
    with (here.root / "holes").open("wb") as file:
        file.truncate(size)
        file.seek(size // 2)
        file.write(b"data")
    await here.courier().fetch(f"{here.url}/holes", str(tmp_path / "in"))
    got = tmp_path / "in" / "holes"
    assert got.stat().st_size == size
    assert got.stat().st_blocks * 512 < 10**6
    with got.open("rb") as file:
        file.seek(size // 2)
        assert file.read(4) == b"data"


CHILD = """
    import asyncio, sys
    from pilotage.data.transfer.courier import Courier
    from pilotage.data.transfer.keys import Credentials
    from tests.contract.transfer.places import allowed
    scheme, host, config, address, target = sys.argv[1:]
    may = allowed(scheme, hosts=(host, "127.0.0.1"))
    courier = Courier(may, keys={host: Credentials(ssh_config=config)})
    asyncio.run(courier.fetch(address, target))
"""


def begin_and_kill(place: Place, target: Path) -> int:
    """Fetch in a process of its own, and kill that when something has arrived."""
    where = url.parse(place.url)
    config = place.keys.get(where.host, Credentials()).ssh_config
    words = [where.scheme, where.host, config, f"{place.url}/big", str(target)]
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(CHILD), *words])
    try:
        end = time.monotonic() + 60
        while True:
            assert child.poll() is None, "it ended before it was killed"
            assert time.monotonic() < end
            if arrived := sum(p.stat().st_size for p in target.glob(".*.part/big")):
                return arrived
            time.sleep(0.005)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()


async def test_kill_9_on_the_way_and_resume_by_http(dav, tmp_path):
    data = os.urandom(8_000_000)
    dav.put({"big": data})
    dav.web.pause = 0.1
    await asyncio.to_thread(begin_and_kill, dav, tmp_path / "in")
    arrived = sum(p.stat().st_size for p in (tmp_path / "in").glob(".*.part/big"))
    assert 0 < arrived < len(data)
    assert not (tmp_path / "in" / "big").exists()
    dav.web.pause, dav.web.sent = 0.0, 0
    await dav.courier().fetch(f"{dav.url}/big", str(tmp_path / "in"))
    assert (tmp_path / "in" / "big").read_bytes() == data
    assert dav.web.sent <= len(data) - arrived
    assert not list((tmp_path / "in").glob(".*"))


async def test_kill_9_on_the_way_and_resume_by_sftp(sshd, tmp_path):
    with places.ssh(sshd, "sftp") as place:
        data = os.urandom(1 << 20) * 100
        place.put({"big": data})
        await asyncio.to_thread(begin_and_kill, place, tmp_path / "in")
        assert not (tmp_path / "in" / "big").exists()
        await place.courier().fetch(f"{place.url}/big", str(tmp_path / "in"))
        assert (tmp_path / "in" / "big").read_bytes() == data


async def test_a_credential_that_expires_on_the_way_pauses_until_there_is_another(dav, tmp_path):
    dav.put({f"f{number}": b"%d" % number for number in range(20)})
    token = tmp_path / "token"
    token.write_text("old")
    dav.web.token = "old"
    dav.keys = {"127.0.0.1": Credentials(token=str(token))}

    def expire(request):
        if dav.web.calls["GET"] > 10 and dav.web.token == "old":
            dav.web.token = "new"

    dav.web.faults.append(expire)
    task = asyncio.create_task(dav.courier(SOON).fetch(f"{dav.url}/", str(tmp_path / "in")))
    await asyncio.to_thread(until, lambda: dav.web.token == "new")
    await asyncio.sleep(0.3)
    calls = sum(dav.web.calls.values())
    await asyncio.sleep(0.3)
    assert not task.done()
    assert sum(dav.web.calls.values()) == calls, "it asks with a credential that is no good"
    token.write_text("new")
    await asyncio.wait_for(task, 60)
    assert len(list((tmp_path / "in").glob("f*"))) == 20


async def test_a_redirect_to_a_host_that_is_not_allowed_is_refused(dav, tmp_path):
    dav.put({"a": b"1"})
    dav.web.faults.append(
        lambda r: RedirectResponse("http://169.254.169.254/latest") if r.method == "HEAD" else None
    )
    with pytest.raises(errors.Denied, match=r"169\.254\.169\.254"):
        await dav.courier().look(f"{dav.url}/a")


async def test_a_redirect_to_a_host_that_is_allowed_gets_no_credential(dav, tmp_path):
    root = tmp_path / "other"
    root.mkdir()
    (root / "a").write_bytes(b"from there")
    token = tmp_path / "token"
    token.write_text("secret")
    dav.keys = {"127.0.0.1": Credentials(token=str(token))}
    seen: list[str] = []
    with serving(root) as other:
        other.faults.append(lambda r: seen.append(r.headers.get("authorization", "")))
        dav.web.faults.append(
            lambda r: RedirectResponse(f"{other.url}/a") if r.method in ("HEAD", "GET") else None
        )
        await dav.courier().fetch(f"{dav.url}/a", str(tmp_path / "in"))
    assert (tmp_path / "in" / "a").read_bytes() == b"from there"
    assert set(seen) == {""}


async def test_a_name_is_resolved_once_and_the_address_kept(dav, tmp_path):
    dav.put({"a": b"1"})
    asked: list[str] = []

    async def resolve(host):
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    may = Allowed(schemes=("http",), hosts=("data.example.org", "127.0.0.1"))
    carrier = Http(may, resolve=resolve)
    where = url.parse(f"http://data.example.org:{dav.web.port}/a")
    await fetch.fetch(carrier, where, str(tmp_path / "in"))
    await carrier.close()
    assert asked == ["data.example.org"]


async def test_a_name_that_leads_to_this_machine_is_refused(dav):
    async def resolve(host):
        return ["127.0.0.1"]

    carrier = Http(Allowed(schemes=("http",), hosts=("data.example.org",)), resolve=resolve)
    with pytest.raises(errors.Denied, match="not listed"):
        await carrier.look(url.parse(f"http://data.example.org:{dav.web.port}/a"))
    await carrier.close()
    assert not dav.web.calls


async def test_a_listing_that_leads_upwards_is_refused(dav, tmp_path):
    line = "<D:response><D:href>/x/../../etc/passwd</D:href></D:response>"
    body = f'<D:multistatus xmlns:D="DAV:">{line}</D:multistatus>'
    dav.web.faults.append(
        lambda r: Response(body, status_code=207) if r.method == "PROPFIND" else None
    )
    with pytest.raises(errors.Denied):
        await dav.courier().fetch(f"{dav.url}/x/", str(tmp_path / "in"))


async def test_a_plain_server_gives_files_and_folders_with_a_manifest(tmp_path):
    source = tmp_path / "out"
    (source / "s").mkdir(parents=True)
    (source / "s" / "a").write_bytes(b"1")
    with places.web(tmp_path / "web", dav=False) as place:
        await place.courier().send(str(source), f"{place.url}/run.1")
        await place.courier().fetch(f"{place.url}/run.1/", str(tmp_path / "in"))
        assert (tmp_path / "in" / "s" / "a").read_bytes() == b"1"
        with pytest.raises(errors.NotFound, match="cannot be listed"):
            await place.courier().look(f"{place.url}/run.1/s/")


async def test_rsync_over_ssh_sends_and_fetches(sshd, tmp_path, needs):
    needs("rsync")
    source = tmp_path / "out"
    (source / "s").mkdir(parents=True)
    (source / "s" / "-o $(id)").write_bytes(b"1")
    with places.ssh(sshd, "rsync+ssh") as place:
        await place.courier().send(str(source), f"{place.url}/run.1")
        await place.courier().fetch(f"{place.url}/run.1/", str(tmp_path / "in"))
        await place.courier().fetch(f"{place.url}/run.1/s/", str(tmp_path / "listed"))
    assert (tmp_path / "in" / "s" / "-o $(id)").read_bytes() == b"1"
    assert (tmp_path / "listed" / "-o $(id)").read_bytes() == b"1"


async def test_a_name_with_a_newline_is_an_ordinary_name(here, tmp_path):
    here.put({"a\nb": b"1"})
    await here.courier().fetch(f"{here.url}/", str(tmp_path / "in"))
    assert (tmp_path / "in" / "a\nb").read_bytes() == b"1"
    assert TransferItem("a\nb", 1).need == 1
