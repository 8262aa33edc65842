"""What every kind of transfer promises, each against a real server on the loopback."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from pilotage.base import errors
from pilotage.data.transfer import courier, fetch, url
from pilotage.data.transfer.model import MANIFEST
from pilotage.data.transfer.retrying import RetryPolicy

FILES = {
    "a.txt": b"hello\n",
    "empty": b"",
    "big.bin": bytes(range(256)) * 20_000,
    "sub/deep/er/b.bin": os.urandom(100_000),
    "sub/with blank": b"1",
    "-o": b"no option",
    "--help": b"no option either",
    "sub/-rf": b"nor this",
    ";x": b"no comment",
    "$(id)`id`'\"": b"no shell",
    "\u00e4\u6f22": b"unicode",
    "100%41": b"no escape",
}
#: Tries again, and does not wait for long.
PATIENT = RetryPolicy(delay=0.01, attempts=5)


def tree(top: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()
    }


def local(top: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return top


async def test_look_tells_names_sizes_and_times(place):
    place.put(FILES)
    found = await place.courier().look(f"{place.url}/")
    assert {item.name: item.size for item in found} == {n: len(d) for n, d in FILES.items()}
    assert (found.files, found.bytes) == (len(FILES), sum(map(len, FILES.values())))
    assert {item.mtime // 10**9 for item in found} == {1_700_000_000}


async def test_a_tree_arrives_whole_and_nothing_else(place, tmp_path):
    place.put(FILES)
    receipt = await place.courier().fetch(f"{place.url}/", str(tmp_path / "in"))
    assert tree(tmp_path / "in") == FILES
    assert (receipt.files, receipt.moved) == (len(FILES), len(FILES))
    assert not list((tmp_path / "in").glob(".*.part"))


async def test_one_file_arrives(place, tmp_path):
    place.put({"a/x y.dat": b"data", "a/other": b""})
    await place.courier().fetch(f"{place.url}/a/x%20y.dat", str(tmp_path))
    assert tree(tmp_path) == {"x y.dat": b"data"}


async def test_what_is_there_already_does_not_move_again(place, tmp_path):
    place.put(FILES)
    target = str(tmp_path)
    await place.courier().fetch(f"{place.url}/", target)
    place.put({"new": b"1"})
    again = await place.courier().fetch(f"{place.url}/", target)
    assert (again.files, again.moved) == (len(FILES) + 1, 1)


async def test_a_source_that_is_missing_is_not_found(place, tmp_path):
    for name in ("nothing", "nothing/"):
        with pytest.raises(errors.NotFound):
            await place.courier().fetch(f"{place.url}/{name}", str(tmp_path))
    assert tree(tmp_path) == {}


async def test_a_destination_that_exists_is_kept_unless_it_may_be_replaced(place, tmp_path):
    place.put({"a": b"theirs", "b": b"b"})
    local(tmp_path, {"a": b"mine, longer"})
    with pytest.raises(errors.Conflict, match="exists already"):
        await place.courier().fetch(f"{place.url}/", str(tmp_path))
    assert tree(tmp_path) == {"a": b"mine, longer"}
    await place.courier().fetch(f"{place.url}/", str(tmp_path), replace=True)
    assert tree(tmp_path) == {"a": b"theirs", "b": b"b"}


async def test_a_beginning_is_gone_on_with(place, tmp_path):
    data = os.urandom(3_000_000)
    place.put({"big": data})
    found = await place.courier().look(f"{place.url}/")
    _, part = fetch._prepare(found, str(tmp_path), 0, replace=False)
    local(Path(part), {"big": data[:1_000_000]})
    await place.courier().fetch(f"{place.url}/", str(tmp_path))
    assert tree(tmp_path) == {"big": data}


async def test_a_result_is_published_by_its_manifest(place, tmp_path):
    source = local(tmp_path / "out", FILES)
    (source / "a.txt").chmod(0o700)
    receipt = await place.courier().send(str(source), f"{place.url}/run.1")
    assert receipt.moved == len(FILES)
    there = tree(place.root / "run.1")
    assert there.keys() == FILES.keys() | {MANIFEST}
    assert {name: there[name] for name in FILES} == FILES

    found = await place.courier().look(f"{place.url}/run.1")
    sums = {item.name: item.sha256 for item in found}
    assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}
    await place.courier().fetch(f"{place.url}/run.1", str(tmp_path / "in"))
    assert tree(tmp_path / "in") == FILES
    assert os.access(tmp_path / "in" / "a.txt", os.X_OK)


async def test_one_file_is_sent(place, tmp_path):
    source = local(tmp_path, {"one": b"1", "other": b"2"})
    await place.courier().send(str(source / "one"), f"{place.url}/up")
    assert tree(place.root / "up").keys() == {"one", MANIFEST}


async def test_the_same_result_twice_is_sent_once(place, tmp_path):
    source = local(tmp_path / "out", {"a": b"1", "s/b": b"2"})
    await place.courier().send(str(source), f"{place.url}/run.1")
    again = await place.courier().send(str(source), f"{place.url}/run.1")
    assert (again.files, again.moved) == (2, 0)


async def test_another_result_does_not_overwrite_one(place, tmp_path):
    await place.courier().send(str(local(tmp_path / "1", {"a": b"1"})), f"{place.url}/run.1")
    other = local(tmp_path / "2", {"a": b"two"})
    with pytest.raises(errors.Conflict, match="another result"):
        await place.courier().send(str(other), f"{place.url}/run.1")
    assert tree(place.root / "run.1")["a"] == b"1"


async def test_a_file_of_somebody_else_at_the_destination_is_kept(place, tmp_path):
    place.put({"run.1/a": b"somebody's"})
    with pytest.raises(errors.Conflict, match="another file"):
        await place.courier().send(str(local(tmp_path, {"a": b"mine"})), f"{place.url}/run.1")
    assert tree(place.root) == {"run.1/a": b"somebody's"}


async def test_a_checksum_that_does_not_match_is_noticed(place, tmp_path):
    await place.courier().send(
        str(local(tmp_path / "out", {"a": b"right", "b": b"b"})), f"{place.url}/run.1"
    )
    place.put({"run.1/a": b"wrong"})
    with pytest.raises(errors.Unavailable, match="SHA-256"):
        await place.courier().fetch(f"{place.url}/run.1", str(tmp_path / "in"))
    assert not (tmp_path / "in" / "a").exists()


async def test_a_manifest_that_ends_early_is_not_believed(place, tmp_path):
    await place.courier().send(
        str(local(tmp_path / "out", {"a": b"1", "b": b"2"})), f"{place.url}/run.1"
    )
    path = place.root / "run.1" / MANIFEST
    place.put({f"run.1/{MANIFEST}": b"".join(path.read_bytes().splitlines(keepends=True)[:-1])})
    with pytest.raises(errors.Unavailable, match="not whole"):
        await place.courier().look(f"{place.url}/run.1")


async def test_a_link_out_of_the_source_is_not_followed(place, tmp_path):
    if place.kind in ("http", "root"):
        pytest.skip("where links lead is the server's affair")
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    place.put({"a": b"a"})
    (place.root / "link").symlink_to(secret)
    with pytest.raises(errors.Denied, match="link"):
        await place.courier().fetch(f"{place.url}/", str(tmp_path / "in"))
    assert not (tmp_path / "in").exists()


async def test_a_link_at_the_destination_is_not_followed_out(place, tmp_path):
    place.put({"sub/a": b"a"})
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "sub").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(errors.Denied, match="leads out"):
        await place.courier().fetch(f"{place.url}/", str(tmp_path / "in"))
    assert tree(tmp_path / "elsewhere") == {}


async def test_a_link_out_of_a_result_is_not_sent(place, tmp_path):
    source = local(tmp_path / "out", {"a": b"a"})
    (source / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(errors.Denied, match="leads out"):
        await place.courier().send(str(source), f"{place.url}/run.1")
    assert tree(place.root) == {}


async def test_a_host_or_folder_that_is_not_allowed_is_refused(place, tmp_path):
    where = url.parse(place.url)
    if place.kind == "file":
        other = f"file://{tmp_path}"
    else:
        other = place.url.replace(where.place, "example.org", 1)
    for act in (place.courier().look(other), place.courier().send(str(tmp_path), other)):
        with pytest.raises(errors.Denied, match="allowed"):
            await act


def test_every_kind_says_what_it_can():
    flags = courier.flags()
    assert flags["sftp"].times
    assert flags["globus"].idempotent
    assert flags["globus"].third_party


# -- what is handed on -----------------------------------------------------------------------------


async def test_a_folder_that_is_pinned_comes_as_it_was_sent_or_not_at_all(place, tmp_path):
    own = local(tmp_path / "own", {"a": b"made", "sub/b": b"b"})
    sent = await place.courier().send(str(own), f"{place.url}/r/")
    got = await place.courier().fetch(f"{place.url}/r/", str(tmp_path / "1"), pinned=sent.digest)
    assert (got.digest, tree(tmp_path / "1")) == (sent.digest, {"a": b"made", "sub/b": b"b"})
    with pytest.raises(errors.Conflict, match="instead of"):
        await place.courier().fetch(f"{place.url}/r/", str(tmp_path / "2"), pinned="0" * 64)
    assert not (tmp_path / "2").exists()
    for other in (b"maid", b"mad"):
        place.put({"r/a": other})
        with pytest.raises(errors.Conflict):
            await place.courier(PATIENT).fetch(
                f"{place.url}/r/", str(tmp_path / "3"), pinned=sent.digest
            )
        assert not (tmp_path / "3" / "a").exists()
        again = await place.courier().send(str(own), f"{place.url}/r/", resend=True)
        assert (again.digest, again.moved) == (sent.digest, 2)
        assert (place.root / "r" / "a").read_bytes() == b"made"


async def test_what_is_sent_anew_heals_a_manifest_that_was_cut_short(place, tmp_path):
    own = local(tmp_path / "own", {"a": b"made"})
    sent = await place.courier().send(str(own), f"{place.url}/r/")
    whole = (place.root / "r" / MANIFEST).read_bytes()
    place.put({f"r/{MANIFEST}": whole[:-9]})
    with pytest.raises(errors.Conflict):
        await place.courier(PATIENT).fetch(
            f"{place.url}/r/", str(tmp_path / "1"), pinned=sent.digest
        )
    await place.courier().send(str(own), f"{place.url}/r/", resend=True)
    assert (place.root / "r" / MANIFEST).read_bytes() == whole


async def test_a_folder_is_removed_with_all_that_is_in_it_and_nothing_beside_it(place):
    place.put({"r/a": b"a", "r/sub/deep/b": b"b", "r2/c": b"c", ".gone-r/old": b"left by another"})
    where = f"{place.url}/r/", f"{place.url}/.gone-r/"
    if place.kind not in ("file", "sftp") and not place.web:
        with pytest.raises(errors.UsageError, match="cannot be removed"):
            await place.courier().clear(*where)
        return
    for _ in range(2):
        await place.courier().clear(*where)
        left = tree(place.root)
        if place.web:
            # The server needs no other name for it.
            left.pop(".gone-r/old")
        assert left == {"r2/c": b"c"}
        assert not (place.root / "r").exists()
