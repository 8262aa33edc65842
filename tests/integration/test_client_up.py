"""The client against a hub that runs: functions, programs, failures, restarts."""

from __future__ import annotations

import concurrent.futures
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pilotage
from pilotage.base import errors
from pilotage.client import AsyncClient, Client, Executor, as_completed
from pilotage.job.model import Command, JobSpec
from testbed.ports import free_port
from tests.rigs.project.functions import (
    add,
    die_at_seven,
    double,
    fail,
    fail_at_seven,
    later,
    note,
    sleep,
    twice,
)
from tests.rigs.project.project import Rig
from tests.suite import programs
from tests.suite.programs import PATIENCE

SETTINGS = "[hub]\nport = 0\n[site]\ncpus = 2\n"


@contextmanager
def connected(rig: Rig) -> Iterator[Client]:
    before = Path.cwd()
    os.chdir(rig.root)
    try:
        with pilotage.connect() as client:
            yield client
    finally:
        os.chdir(before)


@pytest.fixture(scope="module")
def rig(tmp_path_factory) -> Iterator[Rig]:
    """One hub for all tests that leave it as it is."""
    rig = Rig(tmp_path_factory.mktemp("hub"), settings=SETTINGS)
    with rig.up():
        rig.wait(lambda project: (project.state / "hub.json").exists())
        yield rig


@pytest.fixture
def client(rig) -> Iterator[Client]:
    with connected(rig) as client:
        yield client


def test_a_function_is_called(client):
    assert client.submit(double, 21).result(PATIENCE) == 42
    assert client.submit(add, 1, second=5).result(PATIENCE) == 6
    assert client.submit(later, 3).result(PATIENCE) == 3


def test_results_come_in_order_and_are_in_the_store(client):
    assert list(client.map(double, range(1000))) == list(range(0, 2000, 2))
    assert list(client.map(add, [1, 2], [10, 20])) == [11, 22]
    assert list(client.map(add, [1, 2, 3], [10], chunksize=2)) == [11]
    assert list(client.map(double, [])) == []
    future = client.submit(double, 4)
    assert future.result(PATIENCE) == 8
    assert future.job
    job = client.job(future.job)
    assert job["state"] == "done"
    assert job["name"] == "double"


def test_an_exception_is_raised_here_with_its_traceback(client):
    with pytest.raises(errors.RemoteError) as caught:
        client.submit(fail, 3).result(PATIENCE)
    assert (caught.value.kind, caught.value.message) == ("LookupError", "no 3")
    assert 'raise LookupError(f"no {value}")' in caught.value.__notes__[0]
    found = []
    with pytest.raises(errors.RemoteError, match="seven"):
        found.extend(client.map(fail_at_seven, range(100)))


def test_only_the_call_that_kills_its_worker_fails(client):
    # Known to be quick, so that many go together.
    client.submit(die_at_seven, 0).result(PATIENCE)
    futures = [client.submit(die_at_seven, value) for value in range(40)]
    concurrent.futures.wait(futures, PATIENCE)
    for value, future in enumerate(futures):
        if value == 7:
            with pytest.raises(errors.JobFailed, match="SIGKILL"):
                future.result(0)
        else:
            assert future.result(0) == value


def test_a_program_and_a_definition_are_run(client, tmp_path):
    ended = client.submit(["touch", str(tmp_path / "{x}")]).result(PATIENCE)
    assert ended.state == "done"
    assert (tmp_path / "{x}").exists()
    assert client.submit(JobSpec(Command(("true",)), "mine")).result(PATIENCE).state == "done"
    with pytest.raises(errors.JobFailed, match="code 1") as caught:
        client.submit(["false"]).result(PATIENCE)
    assert caught.value.job
    assert client.job(caught.value.job)["state"] == "failed"


def test_options_hold_for_one_view_of_the_client(client):
    view = client.options(timeout=0.3, name="short")
    with pytest.raises(errors.JobFailed, match="time limit"):
        view.submit(sleep, 60).result(PATIENCE)
    assert {job["name"] for job in client.jobs(name="short", limit=5)} == {"short"}
    with pytest.raises(errors.UsageError):
        client.options(cpus=-1, colour="red")


def test_futures_come_as_they_are_done(client):
    slow, quick = client.submit(sleep, 1.0), client.submit(double, 1)
    assert [future is quick for future in as_completed([slow, quick])] == [True, False]
    assert client.gather([slow, quick]) == [1.0, 2]


def test_a_call_that_nobody_wants_is_called_off(client):
    future = client.submit(sleep, 60)
    deadline = time.monotonic() + PATIENCE
    while future.job is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert future.cancel()
    assert future.cancelled()
    client.wait(future, future.job, timeout=PATIENCE)
    assert client.job(future.job)["state"] == "cancelled"


def test_a_job_is_cancelled_by_its_number(client):
    future = client.submit(["sleep", "60"])
    client.submit(double, 1).result(PATIENCE)
    client.cancel(future.job)
    with pytest.raises(errors.JobFailed) as caught:
        future.result(PATIENCE)
    assert caught.value.state == "cancelled"
    with pytest.raises(errors.NotFound):
        client.cancel(10**9)
    with pytest.raises(errors.NotFound):
        client.job(10**9)


def test_waiting_can_take_too_long(client):
    future = client.submit(sleep, 30)
    with pytest.raises(errors.TimedOut):
        client.wait(future, timeout=0.1)
    with pytest.raises(errors.TimedOut):
        next(client.map(sleep, [30], timeout=0.1))
    future.cancel()


def test_it_is_a_pool_of_concurrent_futures(client):
    with Executor(client, name="pooled") as pool:
        assert isinstance(pool, concurrent.futures.Executor)
        futures = [pool.submit(double, value) for value in range(20)]
        done, left = concurrent.futures.wait(futures, PATIENCE)
        assert not left
        assert sorted(future.result() for future in done) == list(range(0, 40, 2))
        assert list(pool.map(add, range(3), range(3))) == [0, 2, 4]
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(double, 1)
    assert client.submit(double, 1).result(PATIENCE) == 2


def test_a_wrong_token_and_a_wrong_address_are_told(rig):
    with connected(rig) as client:
        url = f"http://{client._address.name}"
    with pytest.raises(errors.Denied):
        pilotage.connect(url, "pil_u_" + "x" * 43)
    with pytest.raises(errors.Unavailable, match="cannot reach"):
        pilotage.connect("http://127.0.0.1:9", "x")


def test_a_closed_client_says_so(rig):
    with connected(rig) as client:
        left = client.submit(sleep, 60)
    with pytest.raises(errors.Unavailable, match="closed before"):
        left.result(PATIENCE)
    with pytest.raises(errors.UsageError, match="closed"):
        client.submit(double, 1)
    with connected(rig) as client:
        client.cancel(left.job or 0)


@pytest.mark.anyio
async def test_the_same_in_an_event_loop(rig, monkeypatch):
    monkeypatch.chdir(rig.root)
    async with AsyncClient() as client:
        assert await client.submit(double, 21) == 42
        assert [one async for one in client.map(double, range(600))] == list(range(0, 1200, 2))
        assert await client.gather([client.submit(add, 1, n) for n in range(5)]) == [1, 2, 3, 4, 5]
        with pytest.raises(errors.RemoteError, match="no 3"):
            await client.submit(fail, 3)
        assert (await client.options(name="aio").submit(["true"])).state == "done"
        assert (await client.jobs(name="aio"))[0]["state"] == "done"
        slow, quick = client.submit(sleep, 60), client.submit(sleep, 0)
        async for first in client.as_completed([slow, quick]):
            assert first is quick
            break
        await client.cancel(slow)
        assert slow.job
        await client.wait(slow.job)
        assert (await client.job(slow.job))["state"] == "cancelled"
    with pytest.raises(errors.UsageError, match="not open"):
        client.submit(double, 1)


@pytest.mark.anyio
async def test_an_encrypted_link_carries_the_same(tmp_path, monkeypatch):
    rig = Rig(tmp_path / "hub", settings=SETTINGS.replace("port = 0", 'port = 0\ntls = "on"'))
    monkeypatch.chdir(rig.root)
    with rig.up():
        rig.wait(lambda project: (project.state / "hub.json").exists())
        with pilotage.connect() as client:
            assert client._address.secure
            assert list(client.map(double, range(600))) == list(range(0, 1200, 2))
            text = "x" * (1 << 20)
            assert client.submit(twice, text).result(PATIENCE) == text + text
            assert client.jobs(limit=1)[0]["name"] == "twice"
        async with AsyncClient() as other:
            assert [one async for one in other.map(double, range(600))] == list(range(0, 1200, 2))


@pytest.mark.slow
@pytest.mark.parametrize("count", [120, pytest.param(600, marks=pytest.mark.soak)])
def test_a_hub_that_is_killed_and_comes_back_loses_and_doubles_nothing(tmp_path, count):
    rig = Rig(tmp_path / "hub", settings=SETTINGS.replace("port = 0", f"port = {free_port()}"))
    log = tmp_path / "log"
    process = rig.start()
    programs.until_ready(process, (rig.root / ".pilotage/hub.json").exists, lambda: rig.said)
    try:
        with connected(rig) as client:
            futures = []
            for value in range(count):
                futures.append(client.submit(note, str(log), value))
                if value in (30, 80, 300):
                    process.kill()
                    process.wait()
                    process = rig.start()
            assert client.gather(futures) == list(range(count))
    finally:
        programs.end(process)
    # At least once is what a worker that is killed with its call may do; the jobs are once each.
    assert {int(line) for line in log.read_text().split()} == set(range(count))
    with rig.project() as project:
        assert project.db.rows("job_counts")
