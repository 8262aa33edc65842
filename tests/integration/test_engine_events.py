"""Every kind of event reaches its rules, with the conditions that a pattern sets."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import anyio
import httpx2
import pytest

from pilotage.job.model import State
from testbed.ports import free_port
from tests.rigs.project.project import Rig


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    return folder


def names(rig: Rig, rule: str) -> list[str]:
    return sorted(Path(job.binding.path).name for job in rig.jobs(rule))


async def test_conditions_of_files(tmp_path: Path, raw: Path) -> None:
    rig = Rig(
        tmp_path,
        """
[rule.glob]
files = ["raw/*.csv", "raw/sub/**/*.csv"]
exclude = "*bad*"
run = ["true"]
[rule.capture]
files = "raw/scan_{scan}_{i}.tif"
run = ["echo", "{match.scan}", "{i}"]
[rule.regex]
regex = 'raw/run(?P<number>\\d+)\\.h5'
run = ["echo", "{number}"]
[rule.large]
files = "raw/*"
min_size = "1kB"
max_size = "10kB"
run = ["true"]
[rule.young]
files = "raw/*.age"
max_age = "1h"
run = ["true"]
""",
    )
    async with rig.live():
        (raw / "sub/deep").mkdir(parents=True)
        for name in ("a.csv", "bad.csv", "sub/deep/b.csv", "scan_x_07.tif", "run12.h5", "runx.h5"):
            (raw / name).write_text("x")
        (raw / "large").write_text("x" * 2000)
        (raw / "huge").write_text("x" * 20000)
        (raw / ".old").write_text("x")
        os.utime(raw / ".old", (1, 1))
        (raw / ".old").rename(raw / "old.age")
        (raw / "new.age").write_text("x")
        await rig.ended(6)
        await anyio.sleep(0.5)
    assert names(rig, "glob") == ["a.csv", "b.csv"]
    (capture,) = rig.jobs("capture")
    assert rig.output(capture) == "x 07\n"
    (regex,) = rig.jobs("regex")
    assert rig.output(regex) == "12\n"
    assert names(rig, "large") == ["large"]
    assert names(rig, "young") == ["new.age"]


async def test_directories_and_every_kind(tmp_path: Path, raw: Path) -> None:
    kinds = "dir.created", "dir.deleted", "dir.moved", "deleted", "moved_from", "modified"
    rules = "".join(
        f'[rule.{kind.replace(".", "-")}]\nfiles = "raw/*"\nevents = ["{kind}"]\nrun = ["true"]\n'
        for kind in kinds
    )
    rig = Rig(tmp_path, rules)
    async with rig.live():
        (raw / "d1").mkdir()
        await rig.ended(1, "dir-created")
        (raw / "d1").rename(raw / "d2")
        await rig.ended(1, "dir-moved")
        (raw / "d2").rmdir()
        await rig.ended(1, "dir-deleted")
        (raw / "f").write_text("x")
        await rig.ended(1, "modified")
        (raw / "f").rename(raw / "g")
        await rig.ended(1, "moved_from")
        (raw / "g").unlink()
        await rig.ended(1, "deleted")
    assert names(rig, "dir-created") == ["d1"]
    assert names(rig, "dir-moved") == ["d2"]
    assert names(rig, "moved_from") == ["f"]
    assert names(rig, "deleted") == ["g"]


async def test_sets_of_files_make_one_job(tmp_path: Path, raw: Path) -> None:
    rig = Rig(
        tmp_path,
        """
[rule.three]
files = "raw/*.part"
gather = { count = 3 }
run = ["cat", "{paths}"]
[rule.scan]
files = "raw/{scan}_{i}.tif"
gather = { by = "{match.scan}", item = "{match.i}", values = { start = 0, stop = 2 } }
run = ["echo", "{match.scan}", "{paths}"]
""",
    )
    async with rig.live():
        for name in ("a.part", "b.part", "x_000.tif", "y_000.tif", "x_001.tif", "y_002.tif"):
            (raw / name).write_text(name)
        await anyio.sleep(0.5)
        assert rig.jobs() == []
    # What has been gathered survives a restart.
    async with rig.live():
        (raw / "c.part").write_text("c.part")
        (raw / "x_002.tif").write_text("x")
        await rig.ended(2)
    (three,) = rig.jobs("three")
    assert rig.output(three) == "a.partb.partc.part"
    (scan,) = rig.jobs("scan")
    expected = " ".join(str(raw / f"x_00{number}.tif") for number in range(3))
    assert rig.output(scan) == f"x {expected}\n"


async def test_settle_survives_a_restart(tmp_path: Path, raw: Path) -> None:
    rig = Rig(tmp_path, '[rule.calm]\nfiles = "raw/*"\nsettle = "1s"\nrun = ["true"]\n')
    async with rig.live():
        (raw / "a").write_text("x")
        await anyio.sleep(0.3)
        assert rig.jobs() == []
    async with rig.live():
        await rig.ended(1)
    assert len(rig.jobs()) == 1


async def test_min_age_is_waited_for(tmp_path: Path, raw: Path) -> None:
    rig = Rig(tmp_path, '[rule.old]\nfiles = "raw/*"\nmin_age = "1s"\nrun = ["true"]\n')
    async with rig.live():
        written = time.time()
        (raw / "a").write_text("x")
        (job,) = await rig.ended(1)
    assert job.created >= written + 0.9


async def test_timers(tmp_path: Path) -> None:
    rig = Rig(tmp_path, '[rule.tick]\nevery = "300ms"\nrun = ["echo", "{tick}"]\n')
    async with rig.live():
        jobs = await rig.ended(3)
    times = [rig.output(job).strip() for job in jobs]
    assert len(times) == len(set(times)), "each tick once"
    assert all(time.startswith("20") for time in times)


async def test_messages_by_every_door(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    http_port, tcp_port = free_port(), free_port()
    rig = Rig(
        tmp_path,
        '[rule.said]\nmessage = "beam.*"\nrun = ["echo", "{message.energy}"]\n'
        f'[rule.tcp]\nmessage = "tcp.lines"\nport = {tcp_port}\nrun = ["cat", "{{path}}"]\n',
        f'[hub]\nport = {http_port}\n[http]\ntoken_file = "secret"\n',
    )
    async with rig.live(serve=lambda _: None) as project, httpx2.AsyncClient() as client:
        project.emit("beam.on", {"energy": 12.4})
        project.emit("other.topic", {"energy": 0})
        url = f"http://127.0.0.1:{http_port}/events/beam.off"
        headers = {"Authorization": "Bearer s3cret", "Idempotency-Key": "one"}
        await rig.until(lambda: _listens(http_port) and _listens(tcp_port))
        for _ in range(2):
            answer = await client.post(url, content=json.dumps({"energy": 7}), headers=headers)
            assert answer.status_code == 202
        denied = await client.post(url, content="{}")
        assert denied.status_code == 401
        async with await anyio.connect_tcp("127.0.0.1", tcp_port) as stream:
            await stream.send(b"hello\nworld\n")
            await stream.send_eof()
            assert (await stream.receive()).startswith(b"ok ")
        await rig.ended(3)
        await anyio.sleep(0.3)
    said = sorted(rig.output(job).strip() for job in rig.jobs("said"))
    assert said == ["12.4", "7"]
    (tcp,) = rig.jobs("tcp")
    assert rig.output(tcp) == "hello\nworld\n"


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_a_message_is_kept_while_nothing_runs(tmp_path: Path) -> None:
    rig = Rig(tmp_path, '[rule.said]\nmessage = "go"\nrun = ["echo", "{message.n}"]\n')
    with rig.project() as project:
        assert project.emit("go", {"n": 1}, identity="x") == project.emit("go", identity="x")
        project.emit("go", {"n": 2})
    async with rig.live():
        await rig.ended(2)
    assert sorted(rig.output(job).strip() for job in rig.jobs()) == ["1", "2"]


async def test_ends_of_jobs_fire_rules(tmp_path: Path, raw: Path) -> None:
    rig = Rig(
        tmp_path,
        """
[rule.work]
files = "raw/*"
run = ["test", "{name}", "=", "good"]
[rule.cheer]
job = "work"
run = ["echo", "{ended.id}"]
[rule.mourn]
job = "work"
states = ["failed"]
run = ["echo", "{ended.reason}"]
""",
    )
    async with rig.live():
        (raw / "good").write_text("x")
        (raw / "bad").write_text("x")
        await rig.ended(4)
    by_name = {Path(job.binding.path).name: job for job in rig.jobs("work")}
    (cheer,) = rig.jobs("cheer")
    assert cheer.parent == by_name["good"].id
    (mourn,) = rig.jobs("mourn")
    assert mourn.parent == by_name["bad"].id
    assert "code 1" in rig.output(mourn)


async def test_a_rate_limit_delays_and_drops_nothing(tmp_path: Path, raw: Path) -> None:
    rig = Rig(tmp_path, '[rule.slow]\nfiles = "raw/*"\nrate = "2/s"\nrun = ["true"]\n')
    async with rig.live():
        began = time.time()
        for number in range(6):
            (raw / str(number)).write_text("x")
        jobs = await rig.ended(6)
    # Counted from before the first file: the first job may have started late itself.
    started = sorted(job.started or 0 for job in jobs)
    assert all(when >= began + number // 2 for number, when in enumerate(started))
    assert {job.state for job in jobs} == {State.DONE}


async def test_a_rate_limit_outlives_a_restart(tmp_path: Path, raw: Path) -> None:
    rig = Rig(tmp_path, '[rule.slow]\nfiles = "raw/*"\nrate = "1/h"\nrun = ["true"]\n')
    async with rig.live():
        (raw / "a").write_text("x")
        await rig.ended(1)
    async with rig.live():
        (raw / "b").write_text("x")
        await rig.until(lambda: len(rig.jobs()) == 2)
    first, second = rig.jobs()
    assert second.state is State.QUEUED
    assert second.not_before >= first.created + 3599


async def test_polling_where_the_kernel_is_blind(tmp_path: Path, raw: Path) -> None:
    settings = '[events]\nmode = "poll"\npoll_interval = "100ms"\nsettle = "300ms"\n'
    rig = Rig(tmp_path, '[rule.poll]\nfiles = "raw/*"\nrun = ["true"]\n', settings)
    async with rig.live():
        (raw / "a").write_text("x")
        await rig.ended(1)
    assert names(rig, "poll") == ["a"]


def test_until_idle_waits_for_files_that_settle(tmp_path: Path, raw: Path) -> None:
    settings = '[events]\nmode = "poll"\npoll_interval = "200ms"\nsettle = "1s"\n'
    rig = Rig(tmp_path, '[rule.poll]\nfiles = "raw/*"\nrun = ["true"]\n', settings)
    (raw / "a").write_text("x")
    assert rig.run() == 0
    assert names(rig, "poll") == ["a"]
