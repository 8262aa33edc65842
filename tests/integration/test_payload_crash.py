"""Death of the starter, of its parent, or of both: nothing is lost and nothing stays."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from pilotage.base import errors
from pilotage.payload.starter import process
from pilotage.run import Ending, EndReason, Launch, Starter, alive, end_orphans, evidence

pytestmark = pytest.mark.anyio

DEADLINE = 60.0
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}

PARENT = """
import sys, anyio
from pathlib import Path
from pilotage.run import Launch, Starter

async def main(root):
    async with Starter.open(root) as starter:
        (root / "lock").write_text(str(starter.lock))
        await starter.start([
            Launch(
                key=f"{root.name}-{n}.1",
                argv=("sh", "-c", "while ! test -e go; do sleep 0.02; done; exit 4"),
                env={"PATH": "/usr/bin:/bin"}, cwd=str(root), dir=str(root / str(n)),
            ) for n in range(3)
        ])
        async for reports in starter:
            (root / "begun").touch()

anyio.run(main, Path(sys.argv[1]))
"""


def wait(root: Path, key: str, *script: str) -> Launch:
    argv = ("sh", "-c", *(script or ("while ! test -e go; do sleep 0.02; done",)))
    return Launch(key=key, argv=argv, env=ENV, cwd=str(root), dir=str(root / key))


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(DEADLINE):
        while not condition():  # noqa: ASYNC110 - no event comes from another process
            await anyio.sleep(0.005)


async def endings(starter: Starter) -> list[Ending]:
    with anyio.fail_after(DEADLINE):
        return [one async for reports in starter for one in reports if isinstance(one, Ending)]


def holders(keys: set[str]) -> list[int]:
    return [
        pid
        for pid, row in process.table().items()
        if row.state not in "ZX" and process.key_of(pid) in keys
    ]


async def test_payloads_outlive_their_parent_and_leave_evidence(tmp_path):
    keys = {f"{tmp_path.name}-{n}.1" for n in range(3)}
    argv = [sys.executable, "-c", PARENT, str(tmp_path)]
    async with await anyio.open_process(argv, stdout=None, stderr=None) as parent:
        await until((tmp_path / "begun").exists)
        await until(lambda: len(holders(keys)) >= 3)
        parent.kill()
        await parent.wait()
    lock = Path((tmp_path / "lock").read_text())
    assert alive(lock)
    assert len(holders(keys)) >= 3
    assert evidence(tmp_path / "0") is None
    (tmp_path / "go").touch()
    await until(lambda: not alive(lock))
    for n in range(3):
        found = evidence(tmp_path / str(n))
        assert found is not None
        assert (found.key, found.reason, found.exit) == (
            f"{tmp_path.name}-{n}.1",
            EndReason.EXITED,
            4,
        )
    assert not holders(keys)


async def test_an_end_before_the_parents_death_is_written_too(tmp_path):
    async with Starter.open(tmp_path, linger=True) as starter:
        await starter.start([wait(tmp_path, "1.1", "exit 5"), wait(tmp_path, "2.1")])
        with anyio.fail_after(DEADLINE):
            async for reports in starter:
                if any(isinstance(one, Ending) for one in reports):
                    break
        await until(lambda: len(list(tmp_path.glob("*/stdout"))) == 2)
    await until(lambda: evidence(tmp_path / "1.1"))
    assert alive(starter.lock)
    (tmp_path / "go").touch()
    await until(lambda: not alive(starter.lock))
    first, second = evidence(tmp_path / "1.1"), evidence(tmp_path / "2.1")
    assert first is not None
    assert first.exit == 5
    assert second is not None
    assert second.ok


async def test_leaving_stops_the_payloads(tmp_path):
    async with Starter.open(tmp_path, grace=DEADLINE) as starter:
        await starter.start([wait(tmp_path, "1.1")])
        await until((tmp_path / "1.1" / "stdout").exists)
    found = evidence(tmp_path / "1.1")
    assert found is not None
    assert (found.reason, found.signal) == (EndReason.STOPPED, signal.SIGTERM)
    assert not alive(starter.lock)
    assert not starter.lock.exists()


async def test_leaving_by_cancellation_stops_the_payloads(tmp_path):
    with anyio.CancelScope() as scope:
        async with Starter.open(tmp_path, grace=DEADLINE) as starter:
            await starter.start([wait(tmp_path, "1.1")])
            await until((tmp_path / "1.1" / "stdout").exists)
            scope.cancel()
            await anyio.sleep_forever()
    assert not alive(starter.lock)
    assert evidence(tmp_path / "1.1") is not None


async def test_a_killed_starter_loses_its_payloads_but_leaves_none(tmp_path):
    hidden = "env -i sleep 3600 & setsid sleep 3600 & echo; wait"
    keys = {f"{tmp_path.name}-{n}.1" for n in range(3)}
    async with Starter.open(tmp_path) as starter:
        await starter.start([wait(tmp_path, key, hidden) for key in sorted(keys)])
        await until(lambda: all((tmp_path / k / "stdout").exists() for k in keys))
        await until(lambda: len(holders(keys)) >= 6)
        session = starter._pid
        os.kill(session, signal.SIGKILL)
        ended = await endings(starter)
        assert {one.key for one in ended} == keys
        assert {one.reason for one in ended} == {EndReason.LOST}
        assert not holders(keys)
        living = [row for row in process.table().values() if row.state not in "ZX"]
        assert not [row for row in living if row.session == session]
        assert not alive(starter.lock)
        with pytest.raises(errors.Unavailable, match="has died"):
            await starter.start([wait(tmp_path, "later.1")])


async def test_a_starter_that_is_told_to_end_leaves_evidence(tmp_path):
    async with Starter.open(tmp_path) as starter:
        await starter.start(
            [wait(tmp_path, "1.1"), wait(tmp_path, "2.1", "trap '' INT HUP; sleep 3600")]
        )
        await until(lambda: len(list(tmp_path.glob("*/stdout"))) == 2)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            os.kill(starter._pid, number)
        ended = {one.key: one for one in await endings(starter)}
    assert {one.reason for one in ended.values()} == {EndReason.STOPPED}
    for key in ("1.1", "2.1"):
        assert evidence(tmp_path / key) == ended[key]


async def test_orphans_are_found_by_their_key(tmp_path):
    key = f"{tmp_path.name}.1"
    async with await anyio.open_process(
        ["sh", "-c", "setsid sleep 3600 & sleep 3600 & echo; wait"],
        env=ENV | {"PILOTAGE_KEY": key},
        start_new_session=True,
    ) as orphan:
        await until(lambda: len(holders({key})) == 3)
        assert await anyio.to_thread.run_sync(end_orphans, {"other.1"}) == 0
        assert await anyio.to_thread.run_sync(end_orphans, {key}) == 3
        assert not holders({key})
        assert await orphan.wait() == -signal.SIGKILL


async def test_a_payload_whose_starter_lives_is_no_orphan(tmp_path):
    key = f"{tmp_path.name}.1"
    async with Starter.open(tmp_path) as starter:
        await starter.start([wait(tmp_path, key)])
        await until(lambda: holders({key}))
        assert await anyio.to_thread.run_sync(end_orphans, {key}) == 0
        assert holders({key})


POINTS = ["received", "claimed", "spawned", "reaped", "reported"]


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.crash_points
@pytest.mark.parametrize("point", POINTS)
async def test_a_crash_anywhere_ends_every_payload_once(tmp_path, monkeypatch, point, nth):
    monkeypatch.setenv("PILOTAGE_CRASH_AT", f"starter.{point}:{nth}")
    keys = {f"{tmp_path.name}-{n}.1" for n in range(3)}
    async with Starter.open(tmp_path) as starter:
        await starter.start([wait(tmp_path, key, "echo >> ../starts") for key in sorted(keys)])
        ended = await endings(starter)
    assert sorted(one.key for one in ended) == sorted(keys)
    assert {one.reason for one in ended} <= {EndReason.LOST, EndReason.EXITED}
    assert EndReason.LOST in {one.reason for one in ended} or point == "reported"
    assert not holders(keys)
    assert not alive(starter.lock)


async def test_a_starter_that_cannot_start_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr("pilotage.run.starter._PROGRAM", tmp_path / "missing")
    with pytest.raises(errors.Unavailable, match="can't open file"):
        async with Starter.open(tmp_path):
            pass


async def test_what_still_waits_when_the_parent_goes_is_never_started(tmp_path):
    async with Starter.open(tmp_path, slots=1, linger=True) as starter:
        await starter.start([wait(tmp_path, "1.1"), wait(tmp_path, "2.1")])
        await until((tmp_path / "1.1" / "stdout").exists)
    (tmp_path / "go").touch()
    await until(lambda: not alive(starter.lock))
    assert evidence(tmp_path / "1.1") is not None
    assert not (tmp_path / "2.1").exists()
