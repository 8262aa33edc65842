"""What has gone wrong in other pilot systems, and must not here.

Each test is named after what happened; the numbers are those of glideinWMS issues, if there is one.
"""

from __future__ import annotations

import asyncio
import collections
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilotage.job import records
from pilotage.job.model import Command, JobSpec, NewJob, Resources, Retry, State
from pilotage.match.classes import QueuedJob
from pilotage.match.cluster import Cluster
from pilotage.match.negotiate import Matcher
from pilotage.match.place import Place
from pilotage.match.share import Shares
from pilotage.project import tokens
from pilotage.store import Db
from tests.rigs.node import port_links, real_hub
from tests.rigs.node.port_links import Caller, HubWithoutPort, backroom
from tests.rigs.node.real_hub import RealHub, enrolled, running
from tests.rigs.node.scripted_pilot import LinkConnection, Node, end

#: Given up quickly; the test is then quick, too.
_HASTY = 'heartbeat = "0.8s"\nlease = "4s"\nsandbox = "none"\n'
#: Nobody is given up, however long a slow machine takes to hear all.
_PATIENT = 'heartbeat = "1s"\nlease = "10m"\nsandbox = "none"\n'


@pytest.fixture
def hub(tmp_path) -> Iterator[RealHub]:
    with running(tmp_path / "hub") as one:
        yield one


@pytest.fixture(scope="module")
def tidy(tmp_path_factory) -> Iterator[RealHub]:
    """One hub for tests whose jobs are done and whose pilots have left when they end."""
    with running(tmp_path_factory.mktemp("tidy") / "hub") as one:
        yield one


@pytest.fixture
def patient(tmp_path) -> Iterator[RealHub]:
    with running(tmp_path / "hub", pilots=_PATIENT) as one:
        yield one


@pytest.fixture
def hasty(tmp_path) -> Iterator[RealHub]:
    with running(tmp_path / "hub", pilots=_HASTY) as one:
        yield one


@pytest.fixture
async def driven(tmp_path) -> AsyncIterator[HubWithoutPort]:
    """A hub whose leases end when the test says so."""
    async with backroom(tmp_path) as one:
        yield one


async def _pass(hub: HubWithoutPort, leases: float) -> None:
    """Have time pass, and the hub look at its pilots."""
    hub.later += leases * port_links.LEASE
    await hub.round()


@asynccontextmanager
async def _talk(hub: RealHub) -> AsyncIterator[LinkConnection]:
    talk = await LinkConnection.open(hub)
    try:
        yield talk
    finally:
        await talk.cut()


def _submit(hub: RealHub, count: int, **more: Any) -> list[int]:
    """Queue jobs in one transaction."""
    spec = {"recipe": Command(("true",)), "name": "job", **more}
    owner = spec.pop("owner", "")
    with hub.project.change() as db:
        new = NewJob(JobSpec(**spec), owner=owner)
        found = [records.add(db, new, time.time()) for _ in range(count)]
    return [one for one in found if one is not None]


async def _until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.05)


def _alarms(hub: RealHub | HubWithoutPort) -> list[str]:
    return [row[0] for row in _db(hub).rows("alarm_all")]


def _pilot_states(hub: RealHub | HubWithoutPort) -> dict[str, int]:
    return dict(_db(hub).rows("api_pilot_counts"))


def _db(hub: RealHub | HubWithoutPort) -> Db:
    return hub.project.db if isinstance(hub, RealHub) else hub.db


# -- matching ------------------------------------------------------------------------------------


def _cluster(matcher: Matcher, **wants: Any) -> Cluster:
    return matcher.clusters.of(JobSpec(Command(("true",)), "job", **wants), "me")


def test_autocluster_starvation_a_hundred_thousand_unmatchable_jobs_beside_sixty_runnable():
    """In HTCondor 23.9 the unmatchable ones used up the cycle (HTCONDOR-3855)."""
    matcher = Matcher(Shares(86400.0))
    hopeless = [
        _cluster(matcher, requirements=f"site == 'nowhere{number}'") for number in range(200)
    ]
    for number in range(100_000):
        matcher.add(QueuedJob(number, 10, "me", hopeless[number % 200]), 0.0)
    for number in range(100_000, 100_060):
        matcher.add(QueuedJob(number, 0, "me", _cluster(matcher)), 0.0)
    place = Place(1, "here", {"site": "here"}, cpus=64, memory=1 << 40)
    place.taking = True
    matcher.join(place)
    began = time.process_time()
    picked = matcher.pick(place, 0.0)
    assert [one.job for one in picked] == list(range(100_000, 100_060))
    # To look at each of them takes many times as long.
    assert time.process_time() - began < 2.0


async def test_runnable_jobs_start_at_once_behind_unmatchable_ones_with_a_real_hub(hub):
    _submit(hub, 1000, requirements="site == 'nowhere'", priority=10)
    runnable = _submit(hub, 60)
    async with _talk(hub) as talk:
        node = await Node(talk, cpus=64).join(hub.secret())
        found = await node.sync(wait=5.0)
        assert sorted(one["key"] for one in found["jobs"]) == sorted(f"{job}.1" for job in runnable)


async def test_unusable_idle_slots_are_known_as_such_405_332(hub):
    """12 000 jobs waited beside slots that looked free and that none of them could use."""
    (job,) = _submit(hub, 1, resources=Resources(memory=64 << 30))
    async with _talk(hub) as talk:
        nodes = [
            await Node(talk, p=number, host=f"n{number}").join(hub.secret()) for number in range(3)
        ]
        for node in nodes:
            assert (await node.sync())["jobs"] == []
        await _until(lambda: _pilot_states(hub).get("available") == 3)
        command = [
            sys.executable, "-m", "pilotage", "explain", str(job), "--json", "--project",
            str(hub.root),
        ]  # fmt: skip
        said = await asyncio.to_thread(
            subprocess.run, command, check=True, capture_output=True,
            env={"PYTHONPATH": str(real_hub.SRC), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        (found,) = msgspec.json.decode(said.stdout)["jobs"]
        (reason,) = found["reasons"]
        assert "memory" in reason["text"]
        assert reason["detail"] == "every offer fails; they have 8GiB"
        assert "3 offers would do then" in found["suggestion"]


async def test_runaway_submission_of_one_owner_does_not_keep_others_waiting_306(hub):
    """Somebody submits without end; whoever comes later still gets a fair share at once."""
    ann = hub.token(tokens.TokenScope.USER, "ann")
    bob = hub.token(tokens.TokenScope.USER, "bob")
    spec = {"recipe": {"kind": "command", "argv": ["true"]}, "name": "job"}
    async with _talk(hub) as talk, _talk(hub) as first, _talk(hub) as second:
        await first.ask("login", protocol=1, token=ann)
        for _ in range(5):
            await first.ask("submit", jobs=[{"spec": spec}] * 1000)
        node = await Node(talk, cpus=4).join(hub.secret())
        await node.sync()
        await second.ask("login", protocol=1, token=bob)
        mine = set((await second.ask("submit", jobs=[{"spec": spec}] * 8))["ids"])
        turns = 0
        while mine:
            found = await node.sync(*(end(key) for key in list(node.running)))
            mine -= {int(one["key"].partition(".")[0]) for one in found["jobs"]}
            turns += 1
            assert turns <= 8
        # And one message is bounded: who says that more will come is not listened to.
        first.write((17 << 20).to_bytes(4, "big"))
        await asyncio.wait_for(first.ended(), 60)


# -- pilots that come and go ---------------------------------------------------------------------


@pytest.mark.parametrize("count", [400, pytest.param(2000, marks=pytest.mark.soak)])
async def test_join_storm_of_pilots_at_once(patient, count):
    """The seed's system took two a second."""
    token = patient.token(tokens.TokenScope.ENROL, site="storm")
    jobs = _submit(patient, count)
    talks = [await LinkConnection.open(patient) for _ in range(20)]
    nodes = [
        Node(talk, p=number, host=f"n{at}-{number}", cpus=1)
        for at, talk in enumerate(talks)
        for number in range(count // 20)
    ]
    began = time.monotonic()
    await asyncio.gather(*(node.join(token) for node in nodes))
    took = time.monotonic() - began
    assert len({node.number for node in nodes}) == count
    # Many times as many a second, also on a busy machine.
    assert took < count / 10
    await asyncio.gather(*(node.sync(wait=5.0) for node in nodes))
    held = [key for node in nodes for key in node.running]
    assert sorted(held) == sorted(f"{job}.1" for job in jobs)
    assert _pilot_states(patient)["available"] == count
    for talk in talks:
        await talk.cut()


async def test_false_mass_drain_many_silent_pilots_are_the_network_and_nothing_is_requeued_282(
    driven: HubWithoutPort,
):
    """The whole pool of a laboratory was once drained because a monitor was mistaken."""
    jobs = driven.submit(15)
    nodes = [await driven.node(host=f"n{at}") for at in range(15)]
    held = [await node.sync() for node in nodes]
    assert [len(keys) for keys in held] == [1] * 15
    for node in nodes:
        node.caller.cut()
    await _pass(driven, 1.1)
    assert "many pilots are silent" in _alarms(driven)
    await _pass(driven, 1.0)
    assert {driven.job(job).attempt for job in jobs} == {1}
    assert {driven.job(job).state for job in jobs} == {State.RUNNING}
    for node, keys in zip(nodes, held, strict=True):
        found = await node.resume(Caller(driven), keys)
        assert found["stop"] == found["jobs"] == []
    await driven.round()
    assert not _alarms(driven)
    for node, keys in zip(nodes, held, strict=True):
        await node.sync(ended=[port_links.end(key) for key in keys])
    assert {driven.job(job).state for job in jobs} == {State.DONE}
    assert {driven.job(job).attempt for job in jobs} == {1}


async def test_many_silent_pilots_are_given_up_if_they_do_not_come_back(driven: HubWithoutPort):
    jobs = driven.submit(12)
    nodes = [await driven.node(host=f"n{at}") for at in range(12)]
    for node in nodes:
        await node.sync()
        node.caller.cut()
    await _pass(driven, 3.9)
    assert {driven.job(job).state for job in jobs} == {State.RUNNING}
    await _pass(driven, 0.2)
    assert {driven.job(job).state for job in jobs} == {State.QUEUED}
    assert _pilot_states(driven) == {"lost": 12}


async def test_one_silent_pilot_is_given_up_and_its_job_is_begun_anew(hasty):
    (job,) = _submit(hasty, 1)
    talk = await LinkConnection.open(hasty)
    node = await Node(talk).join(hasty.secret())
    await node.sync()
    await talk.cut()
    async with _talk(hasty) as other:
        second = await Node(other, host="other").join(hasty.secret())
        while not second.running:
            await second.sync(wait=0.3)
        assert second.running == [f"{job}.2"]
        await second.sync(end(f"{job}.2"))
    assert hasty.state(job) is State.DONE
    assert _pilot_states(hasty)["lost"] == 1


async def test_a_pilot_that_comes_back_late_changes_nothing(driven: HubWithoutPort):
    (job,) = driven.submit()
    late = await driven.node(host="late")
    assert await late.sync() == [f"{job}.1"]
    late.caller.cut()
    await _pass(driven, 1.1)
    second = await driven.node(host="other")
    assert await second.sync() == [f"{job}.2"]
    found = await late.resume(Caller(driven), [f"{job}.1"])
    assert [one["key"] for one in found["stop"]] == [f"{job}.1"]
    await late.sync(ended=[port_links.end(f"{job}.1")])
    assert (driven.job(job).state, driven.job(job).attempt) == (State.RUNNING, 2)
    await second.sync(ended=[port_links.end(f"{job}.2", code=1)])
    # What counts is the attempt that was current.
    assert driven.job(job).state is State.FAILED
    assert [one.state for one in records.attempts(driven.db, job)] == ["lost", "failed"]


async def test_pilots_that_left_as_they_should_are_not_lost_later_and_raise_no_alarm(
    driven: HubWithoutPort,
):
    for at in range(12):
        node = await driven.node(host=f"n{at}")
        await node.caller.ask("leave", reason="no work")
    await _pass(driven, 1.5)
    assert _pilot_states(driven) == {"down": 12}
    assert _alarms(driven) == []


async def test_a_second_pilot_on_the_same_node_works_beside_the_first_287(tidy, tmp_path):
    """Only the first pilot of a node worked, since both used the same paths."""
    base = tmp_path / "node"
    words = ("--work", str(base / "work"))
    with enrolled(tidy, base / "one", *words) as one, enrolled(tidy, base / "two", *words) as two:
        await _until(lambda: _pilot_states(tidy).get("available") == 2)
        # Each ends when all run, which takes the four cores of both.
        met = tmp_path / "met"
        met.mkdir()
        script = f"touch {met}/$0; while [ $(ls {met} | wc -l) -lt 8 ]; do sleep 0.1; done"
        jobs = [tidy.submit("sh", "-c", script, str(number)) for number in range(8)]
        await asyncio.to_thread(tidy.wait, *jobs)
        assert {tidy.state(job) for job in jobs} == {State.DONE}
        holders = {tidy.project.attempts(job)[-1].starter for job in jobs}
        assert len(holders) == 2
        for each in (one, two):
            each.terminate()
            assert await asyncio.to_thread(each.status) == 0


# -- answers and hubs that are lost --------------------------------------------------------------


async def test_an_answer_that_was_lost_is_given_again_and_the_attempt_is_the_same(hub):
    jobs = _submit(hub, 3)
    talk = await LinkConnection.open(hub)
    node = await Node(talk).join(hub.secret())
    talk.say("sync", wait=0.0)
    await _until(lambda: {hub.state(job) for job in jobs} == {State.RUNNING})
    await talk.cut()
    for _ in range(2):
        # The second time also that answer is lost.
        again = await LinkConnection.open(hub)
        node.running = []
        found = await node.resume(again)
        assert sorted(one["key"] for one in found["jobs"]) == [f"{job}.1" for job in jobs]
        assert found["stop"] == []
        await again.cut()
    async with _talk(hub) as last:
        await node.resume(last)
        ends = [end(key) for key in node.running]
        await node.sync(*ends)
        # The answer to that was lost, too: it is told again.
        await node.sync(*ends)
    for job in jobs:
        story = [row[2] for row in hub.project.db.rows("journal_of", job=job)]
        assert story == ["queued", "running", "done"]


async def test_a_hub_that_is_killed_adopts_what_pilots_run_and_starts_nothing_again(hub):
    jobs = _submit(hub, 6)
    talk = await LinkConnection.open(hub)
    token = hub.token(tokens.TokenScope.ENROL)
    nodes = [await Node(talk, p=at, host=f"n{at}", cpus=2).join(token) for at in range(3)]
    for node in nodes:
        await node.sync()
    for _ in range(3):
        hub.kill()
        await talk.cut()
        await asyncio.to_thread(hub.start)
        talk = await LinkConnection.open(hub)
        for node in nodes:
            found = await node.resume(talk)
            assert found["jobs"] == found["stop"] == []
            assert (await node.sync())["jobs"] == []
    for node in nodes:
        await node.sync(*(end(key) for key in list(node.running)))
    assert {hub.state(job) for job in jobs} == {State.DONE}
    assert {hub.project.job(job).attempt for job in jobs} == {1}
    await talk.cut()


# -- nodes and payloads that do harm -------------------------------------------------------------


async def test_a_black_hole_among_good_nodes_stops_getting_work_and_says_so(hub):
    """A node on which everything fails at once eats the queue, unless somebody sees it."""
    jobs = _submit(hub, 400, retry=Retry(attempts=20, delay=0.0))
    async with _talk(hub) as talk:
        token = hub.token(tokens.TokenScope.ENROL)
        good = [await Node(talk, p=at, host=f"good{at}").join(token) for at in range(3)]
        hole = await Node(talk, p=3, host="hole").join(token)
        eaten: collections.Counter[str] = collections.Counter()
        while {row[1:] for row in hub.project.db.rows("job_counts")} != {("done", len(jobs))}:
            for node in [*good, hole]:
                code, wall = (1, 0.01) if node is hole else (0, 5.0)
                eaten[node.host] += len(node.running)
                await node.sync(*(end(key, code, wall) for key in list(node.running)))
        assert eaten["hole"] < 40
        assert (await hole.sync())["jobs"] == []
        await _until(lambda: "node gets no work: hole" in _alarms(hub))


def test_no_shell_reads_what_a_user_wrote_678(tidy, tmp_path):
    """A name in a job's description was once run by the pilot, before any container."""
    trap = tmp_path / "trap"
    nasty = [
        f"$(touch {trap})",
        f"`touch {trap}`",
        f"; touch {trap}",
        f"' || touch {trap} #",
        "-rf",
    ]
    with enrolled(tidy, tmp_path / "p") as one:
        jobs = [
            tidy.project.submit(
                NewJob(
                    JobSpec(
                        Command(("printf", "%s|", *nasty)), name=text, env={"NASTY": text},
                        params={"nasty": text},
                    ),
                    tag=text,
                )
            )
            for text in nasty
        ]  # fmt: skip
        tidy.wait(*jobs)
        assert {tidy.state(job) for job in jobs} == {State.DONE}
        assert {tidy.output(job) for job in jobs} == {"".join(f"{text}|" for text in nasty)}
        one.terminate()
        assert one.status() == 0
    assert not trap.exists()


def test_a_pilot_with_a_nasty_name_and_attributes_is_only_text(tidy, tmp_path):
    trap = tmp_path / "trap"
    with enrolled(
        tidy, tmp_path / "p", "--name", f"$(touch {trap})<script>", "--attribute",
        f"rack=' || touch {trap} #",
    ) as one:  # fmt: skip
        job = tidy.submit("true")
        tidy.wait(job)
        assert tidy.state(job) is State.DONE
        one.terminate()
        assert one.status() == 0
    assert not trap.exists()


# -- people ask ----------------------------------------------------------------------------------


async def test_a_person_drains_and_stops_pilots_from_the_command_line(hub):
    jobs = _submit(hub, 2)
    async with _talk(hub) as talk:
        token = hub.token(tokens.TokenScope.ENROL, site="there")
        one = await Node(talk, p=0, host="one", cpus=1).join(token)
        two = await Node(talk, p=1, host="two", cpus=1).join(token)
        for node in (one, two):
            await node.sync()
        await asyncio.to_thread(_command, hub, "pilot", "drain", str(one.number))
        await _until(lambda: _pilot_states(hub).get("draining") == 1)
        _submit(hub, 4)
        found = await one.sync(*(end(key) for key in list(one.running)))
        assert found["jobs"] == []
        assert "person" in found["drain"]
        await asyncio.to_thread(_command, hub, "pilot", "stop", "--site", "there")
        await _until(lambda: _pilot_states(hub).get("draining") == 2)
        found = await two.sync()
        assert [stop["key"] for stop in found["stop"]] == two.running
        assert found["bye"] is True
        said = msgspec.json.decode(await asyncio.to_thread(_command, hub, "pilot", "ls", "--json"))
        assert [one["state"] for one in said["pilots"] if one["id"]] == ["draining"] * 2
        shown = await asyncio.to_thread(_command, hub, "pilot", "show", str(two.number))
        assert b"there" in shown
    assert hub.state(jobs[0]) is State.DONE
    shares = msgspec.json.decode(_command(hub, "share", "--json"))
    assert {one["owner"]: one["queued"] for one in shares["shares"]}


def _command(hub: RealHub, *words: str) -> bytes:
    command = [sys.executable, "-m", "pilotage", *words, "--project", str(hub.root)]
    return subprocess.run(
        command, check=True, capture_output=True,
        env={"PYTHONPATH": str(real_hub.SRC), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())},
    ).stdout  # fmt: skip
