"""What an agent's jobs may reach, how many transfers there are at once, and who is to blame."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shutil
from pathlib import Path

import msgspec
import pytest

from pilotage.agent import staging
from pilotage.agent.app.model import Application, Staging
from pilotage.agent.data import blame
from pilotage.agent.input_cache import SHARED, InputCache
from pilotage.agent.staging import TransferJob, TransferSlots
from pilotage.base import errors
from pilotage.bus.model import Input, Job, Output
from pilotage.data.transfer import allow, url
from pilotage.data.transfer.model import MANIFEST

APP = Application(executable="/opt/sim", sha256="0" * 64)


@pytest.mark.parametrize(
    "address, fine",
    [
        ("https://data.example.org/x", True),
        ("https://data.example.org:8443/x", False),
        ("http://data.example.org/x", True),
        ("https://a.cern.ch:8443/x", True),
        ("https://a.cern.ch/x", False),
        ("https://other.org/x", False),
        ("rsync://data.example.org/x", False),
        ("sftp://data.example.org/x", True),
        ("https://10.0.0.1/x", False),
        ("https://127.0.0.1/x", False),
        ("https://192.168.1.5/x", True),
    ],
)
def test_an_application_says_what_may_be_reached(address, fine):
    found = staging.allowed(
        Staging(
            protocols=("https", "dav", "scp"),
            hosts=("data.example.org", "*.cern.ch:8443", "10.0.0.1", "127.0.0.1", "192.168.1.5"),
            private=("192.168.0.0/16",),
        )
    )
    assert (allow.refusal(found, url.parse(address)) == "") is fine


async def test_a_name_that_leads_inside_is_refused_where_it_is_connected_to():
    found = staging.allowed(Staging(protocols=("https",), hosts=("*",), private=("10.1.0.0/16",)))
    where = url.parse("https://data.example.org/x")
    assert allow.refusal(found, where) == ""
    inside = ["10.2.0.1", "127.0.0.1", "::1", "169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::"]
    for address in inside:
        with pytest.raises(errors.Denied):
            await allow.pin(found, where, found_at(address))
    for address in ("10.1.0.1", "93.184.215.14", "2001:4860:4860::8888"):
        assert await allow.pin(found, where, found_at(address)) == address


def found_at(address: str) -> allow.Resolve:
    return lambda _: resolved(address)


async def resolved(address: str) -> list[str]:
    return [address]


async def test_who_only_waits_leaves_the_lane_to_others():
    lanes = TransferSlots(lambda: 1)
    order: list[str] = []
    waits, go = asyncio.Event(), asyncio.Event()

    async def patient() -> None:
        async with lanes.one() as sleep:
            order.append("begins")
            waits.set()
            await sleep(0.2)
            order.append("goes on")
            go.set()

    async def other() -> None:
        await waits.wait()
        async with lanes.one():
            order.append("other")

    await asyncio.gather(patient(), other())
    assert order == ["begins", "other", "goes on"]


async def test_who_is_called_off_while_it_waits_holds_no_lane():
    lanes = TransferSlots(lambda: 1)

    async def patient() -> None:
        async with lanes.one() as sleep:
            await sleep(600)

    task = asyncio.create_task(patient())
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    async with asyncio.timeout(10):
        async with lanes.one():
            pass


async def test_as_many_go_at_once_as_the_settings_say():
    most = [2]
    lanes, now, seen = TransferSlots(lambda: most[0]), [0], [0]

    async def one() -> None:
        async with lanes.one():
            now[0] += 1
            seen[0] = max(seen[0], now[0])
            await asyncio.sleep(0.01)
            now[0] -= 1

    await asyncio.gather(*(one() for _ in range(10)))
    assert seen == [2]
    most[0] = 4
    await asyncio.gather(*(one() for _ in range(20)))
    assert seen == [4]


# -- folders ---------------------------------------------------------------------------------------


def errand(tmp_path: Path, **facts: object) -> TransferJob:
    (tmp_path / "job").mkdir(exist_ok=True)
    app = msgspec.structs.replace(
        APP, staging=Staging(protocols=("file",), roots=(str(tmp_path / "data"),))
    )
    job = Job(site="here", application="sim", **facts)  # type: ignore[arg-type]
    return TransferJob(app=app, job=job, key="1.1", folder=str(tmp_path / "job"))


async def test_a_folder_with_many_files_is_moved_as_one(tmp_path):
    data, home = tmp_path / "data", tmp_path / "job"
    (data / "tree" / "sub").mkdir(parents=True)
    for number in range(300):
        (data / "tree" / "sub" / f"{number}").write_text(str(number))
    given = errand(tmp_path, inputs=(Input(url=f"file://{data}/tree/"),))
    await staging.fetch(
        given, str(tmp_path / "in"), TransferSlots(lambda: 1), InputCache(lambda: 0)
    )
    assert {one.name for one in (home / "sub").iterdir()} == {str(one) for one in range(300)}
    assert home.stat().st_mode & 0o777 == 0o700
    # What is there already does not come again.
    (data / "tree" / "sub" / "0").write_text("another")
    await staging.fetch(
        given, str(tmp_path / "in"), TransferSlots(lambda: 1), InputCache(lambda: 0)
    )
    assert (home / "sub" / "0").read_text() == "0"


async def test_a_file_that_came_with_the_message_is_put_in_its_place(tmp_path):
    given = errand(tmp_path, inputs=(Input(path="in/deep/a", content="eHl6"),))
    app = msgspec.structs.replace(APP, staging=Staging(protocols=("message",)))
    given = msgspec.structs.replace(given, app=app)
    aside = str(tmp_path / "in")
    for _ in range(2):
        assert (
            await staging.fetch(given, aside, TransferSlots(lambda: 1), InputCache(lambda: 0)) == 3
        )
        assert (tmp_path / "job" / "in" / "deep" / "a").read_bytes() == b"xyz"
    barred = msgspec.structs.replace(given, app=APP, folder=str(tmp_path / "other"))
    other = Input(path="a", content="eHl6", sha256="0" * 64)
    barred = msgspec.structs.replace(barred, job=Job(site="x", application="x", inputs=(other,)))
    with pytest.raises(errors.Denied, match="SHA-256"):
        await staging.fetch(barred, f"{aside}2", TransferSlots(lambda: 1), InputCache(lambda: 0))


@pytest.mark.parametrize("size", [10, SHARED])
async def test_a_program_may_be_run_by_every_job_that_has_it(tmp_path, size):
    (tmp_path / "data").mkdir()
    program, body = tmp_path / "data" / "run", b"#" * size
    program.write_bytes(body)
    program.chmod(0o755)
    one = Input(url=f"file://{program}", path="run", sha256=hashlib.sha256(body).hexdigest())
    contents = InputCache(lambda: 10 * SHARED)
    for job in "abc":
        (tmp_path / job).mkdir()
        given = msgspec.structs.replace(errand(tmp_path, inputs=(one,)), folder=str(tmp_path / job))
        await staging.fetch(given, str(tmp_path / f"{job}.in"), TransferSlots(lambda: 1), contents)
        assert (tmp_path / job / "run").stat().st_mode & 0o100, job
        # It is not asked for again.
        program.unlink(missing_ok=True)


async def test_a_sender_has_nothing_that_only_another_has_brought(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "secret").write_text("secret")
    one = Input(url=f"file://{tmp_path}/data/secret", sha256=hashlib.sha256(b"secret").hexdigest())
    contents, given = InputCache(lambda: 1000), errand(tmp_path, inputs=(one,))
    for user, there in (("ada", True), ("ada", True), ("eve", False)):
        sent = msgspec.structs.replace(given, user=user)
        work = staging.fetch(sent, str(tmp_path / "in"), TransferSlots(lambda: 1), contents)
        with contextlib.nullcontext() if there else pytest.raises(errors.NotFound):
            await work
        (tmp_path / "data" / "secret").unlink(missing_ok=True)
        shutil.rmtree(tmp_path / "in")


@pytest.mark.parametrize(
    "path, output, written",
    [
        ("data", "data/model.bin", True),
        ("data/", "data/model.bin", True),
        ("", "model.bin", True),
        ("data/model.bin", "data", True),
        ("data/model.bin", "data/", True),
        ("data", "", True),
        ("model.bin", "model.bin", True),
        ("data", "data.out", False),
        ("data.in", "data", False),
        ("data/in", "data/out", False),
    ],
)
def test_a_job_that_writes_into_an_input_has_one_of_its_own(path, output, written):
    job = Job(site="here", application="sim", outputs=(Output(path=output, url="file:///out"),))
    assert staging._written(job, path) is written


async def test_inputs_that_cannot_be_both_are_a_conflict(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "a").write_text("a")
    given = errand(
        tmp_path,
        inputs=(Input(url=f"file://{data}/a", path="x"), Input(url=f"file://{data}/a", path="x/y")),
    )
    with pytest.raises(errors.PilotageError):
        await staging.fetch(
            given, str(tmp_path / "in"), TransferSlots(lambda: 1), InputCache(lambda: 0)
        )


async def test_two_outputs_of_one_name_are_a_conflict(tmp_path):
    given = errand(
        tmp_path,
        outputs=(
            Output(path="a/x", url=f"file://{tmp_path}/data/out"),
            Output(path="b/x", url=f"file://{tmp_path}/data/out"),
        ),
    )
    for name in "ab":
        (tmp_path / "job" / name).mkdir()
        (tmp_path / "job" / name / "x").write_text(name)
    with pytest.raises(errors.Conflict):
        await staging.send(given, str(tmp_path / "aside"), TransferSlots(lambda: 1), again=False)


def test_less_than_is_to_stay_free_is_waited_for(tmp_path):
    staging.check_room(str(tmp_path), 1)
    with pytest.raises(errors.Unavailable, match="stay free"):
        staging.check_room(str(tmp_path), 1 << 60)


@pytest.mark.parametrize(
    "error, kind",
    [
        (errors.NeedsCredential("x"), "credential"),
        (errors.JobFailed("x"), "application"),
        (errors.TimedOut("x"), "application"),
        (errors.BadMessage("x"), "message"),
        (errors.Denied("x"), "policy"),
        (errors.ConfigError("x"), "policy"),
        (errors.NotFound("x"), "staging"),
        (errors.Conflict("x"), "staging"),
        (errors.PilotageError("x"), "staging"),
    ],
)
def test_who_is_to_blame(error, kind):
    assert blame(error)[0] == kind


async def test_outputs_may_keep_their_paths(tmp_path):
    home, data = tmp_path / "job", tmp_path / "data"
    for name in ("a/x", "b/x", "b/deep/y", "top"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(name)
    data.mkdir()
    url = f"file://{data}/out/"
    given = [("a/x", "a/x"), ("b/", "b/"), ("top", ""), ("top", "again/renamed")]
    outputs = tuple(Output(path=path, url=url, below=below) for path, below in given)
    one = errand(tmp_path, outputs=outputs)
    (left,) = await staging.send(
        one, str(tmp_path / "aside"), TransferSlots(lambda: 1), again=False
    )
    found = {
        str(at.relative_to(data / "out")): at.read_text()
        for at in (data / "out").rglob("*")
        if at.is_file() and at.name != MANIFEST
    }
    assert found == {
        "a/x": "a/x", "b/x": "b/x", "b/deep/y": "b/deep/y", "top": "top", "again/renamed": "top",
    }  # fmt: skip
    assert (left.url, left.files, left.bytes) == (url, 5, sum(map(len, found.values())))
