"""Pilots and programs that break the rules of the link, and links that break."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from pilotage.base import errors
from pilotage.job import records
from pilotage.job.model import Call, JobSpec, NewJob, State
from pilotage.match.turn import TurnRecords
from pilotage.project import tokens
from pilotage.store import Db
from tests.rigs.node.port_links import Caller, HubWithoutPort, Node, backroom, end

HUGE = 2**70


def _run(folder: Path, play, **settings) -> None:
    async def main() -> None:
        async with backroom(folder, **settings) as hub:
            await asyncio.wait_for(play(hub), 60)

    asyncio.run(main())


def test_a_stranger_cannot_stop_the_hub_with_a_number(tmp_path):
    async def play(hub: HubWithoutPort) -> None:
        stranger = Caller(hub)
        for pilot in (HUGE, -1, 0, 2**63):
            code = await stranger.refusal("resume", protocol=1, pilot=pilot, key="0" * 64)
            assert code == "E400"
        (job,) = hub.submit()
        assert await (await hub.node()).sync() == [f"{job}.1"]

    _run(tmp_path, play)


def test_numbers_that_no_node_has_do_not_stop_the_queue(tmp_path):
    async def play(hub: HubWithoutPort) -> None:
        first, second = hub.submit(2)
        rogue, good = await hub.node(cpus=1), await hub.node(cpus=1)
        keys = await rogue.sync()
        usage = {"wall": 1e308, "cpu_user": 1e308, "cpu_system": 1e308, "max_rss": HUGE,
                 "read_bytes": -HUGE, "written_bytes": HUGE}  # fmt: skip
        await rogue.sync(ended=[end(keys[0], HUGE, signal=HUGE, usage=usage)], ahead=HUGE)
        assert await good.sync() in ([f"{second}.1"], [])
        assert hub.job(first).state is State.FAILED

    _run(tmp_path, play)


@pytest.mark.parametrize(
    "news", [{"started": [["1.1", HUGE]]}, {"ended": [end(f"{HUGE}.1")]}, {"ended": [end("1.-1")]},
             {"ended": [end("../x")]}]
)  # fmt: skip
def test_what_makes_no_sense_ends_the_connection_and_nothing_else(tmp_path, news):
    async def play(hub: HubWithoutPort) -> None:
        (job,) = hub.submit()
        rogue = await hub.node()
        rogue.caller.say("sync", **news)
        assert rogue.caller.wire.closed
        rogue.caller.cut()
        assert await (await hub.node()).sync() == [f"{job}.1"]

    _run(tmp_path, play)


@pytest.mark.parametrize(
    "facts",
    [{"cpus": 0}, {"cpus": HUGE}, {"memory": -1}, {"work": "here"}, {"host": "a\x1b[2J"},
     {"host": ""}, {"attributes": {"x": {"deep": 1}}}, {"attributes": {"x": [[1]]}},
     {"attributes": {"x": "y" * 100_000}}, {"lifetime": -5.0}],
)  # fmt: skip
def test_a_node_that_cannot_be_is_refused(tmp_path, facts):
    async def play(hub: HubWithoutPort) -> None:
        node = Node(Caller(hub), **facts)
        assert await node.caller.refusal("hello", **node.hello(hub.token())) == "E200"

    _run(tmp_path, play)


def test_a_job_that_cannot_be_written_for_a_pilot_swallows_no_other(tmp_path):
    async def play(hub: HubWithoutPort) -> None:
        call = JobSpec(Call(file="/nowhere/at/all.py", function="f"), "bad")
        with hub.db.transaction():
            bad = records.add(hub.db, NewJob(call), time.time())
        hub.queue.poke()
        good = hub.submit(3)
        node = await hub.node()
        started: list[str] = []
        for _ in range(10):
            keys = await node.sync(ended=[end(key) for key in started[-1:]], wait=0.2)
            started += keys
            if len(started) == 3:
                break
        assert started == [f"{job}.1" for job in good]
        assert hub.job(bad or 0).state is State.FAILED

    _run(tmp_path, play)


def test_what_is_granted_while_a_pilot_changes_its_connection_reaches_it(tmp_path):
    async def play(hub: HubWithoutPort) -> None:
        node = await hub.node()
        node.caller.say("sync", wait=20.0)
        await asyncio.sleep(0.05)
        hub.submit()
        # The turn that grants the job is under way when the pilot comes back.
        fresh = Caller(hub)
        found = await node.resume(fresh, [])
        keys = [one["key"] for one in found["jobs"]] or await node.sync(wait=0.5)
        assert len(keys) == 1

    _run(tmp_path, play)


def test_a_pilot_is_not_heard_by_a_connection_that_it_left(tmp_path):
    async def play(hub: HubWithoutPort) -> None:
        (job,) = hub.submit()
        node = await hub.node()
        old = node.caller
        await node.resume(Caller(hub), [])
        assert await old.refusal("sync") == "E700"
        assert await node.sync() == [f"{job}.1"]

    _run(tmp_path, play)


def test_the_answer_to_one_question_leaves_the_clock_of_the_next_alone(tmp_path):
    async def play(hub: HubWithoutPort) -> None:
        node = await hub.node()
        first = node.caller.say("sync", wait=20.0)
        second = node.caller.say("sync", wait=0.2)
        assert (await node.caller.hear(first))["jobs"] == []
        assert (await node.caller.hear(second))["jobs"] == []

    _run(tmp_path, play)


def test_who_was_found_unfit_or_left_does_not_come_back(tmp_path):
    async def play(hub: HubWithoutPort) -> None:
        hub.submit()
        bad = Node(Caller(hub))
        bad.number = (await bad.caller.ask("hello", **bad.hello(hub.token())))["pilot"]
        check = {"name": "disk", "kind": "hub", "ok": False, "words": "full"}
        assert await bad.caller.refusal("ready", checks=[check]) == "E500"
        assert await bad.caller.refusal("ready", checks=[]) == "E500"
        assert (await bad.caller.ask("sync"))["bye"]
        assert hub.db.value("pilot_state", id=bad.number) == "failed"
        gone = await hub.node()
        await gone.caller.ask("leave")
        await gone.caller.refusal("ready")
        assert (await gone.caller.ask("sync"))["jobs"] == []
        assert "error" in await gone.resume(Caller(hub), [])
        await bad.caller.ask("leave")
        assert hub.db.value("pilot_state", id=bad.number) == "failed"
        assert hub.roster.pilots == {}

    _run(tmp_path, play)


def test_a_stolen_number_is_of_no_use(tmp_path):
    async def play(hub: HubWithoutPort) -> None:
        node = await hub.node()
        thief = Caller(hub)
        code = await thief.refusal("resume", protocol=1, pilot=node.number, key="0" * 64)
        assert code == "E500"
        thief.say("sync")
        assert thief.wire.closed
        (job,) = hub.submit()
        assert await node.sync() == [f"{job}.1"]

    _run(tmp_path, play)


def test_a_pilot_cannot_end_what_another_runs_or_ran(tmp_path):
    async def play(hub: HubWithoutPort) -> None:
        (job,) = hub.submit()
        owner, thief = await hub.node(), await hub.node()
        (key,) = await owner.sync()
        await thief.caller.ask("sync", ended=[end(key)], drain=True)
        assert hub.job(job).state is State.RUNNING
        await owner.caller.ask("leave")
        assert hub.job(job).state is State.QUEUED
        await thief.caller.ask("sync", ended=[end(key)], drain=True)
        assert hub.job(job).state is State.QUEUED

    _run(tmp_path, play)


def test_an_enrolment_token_is_good_for_one_pilot(tmp_path):
    async def play(hub: HubWithoutPort) -> None:
        token = hub.token(uses=1)
        await Node(Caller(hub)).join(token)
        second = Node(Caller(hub))
        assert await second.caller.refusal("hello", **second.hello(token)) == "E500"

    _run(tmp_path, play)


def test_pilots_of_a_revoked_token_are_sent_away_within_a_round(tmp_path):
    async def play(hub: HubWithoutPort) -> None:
        token = hub.token()
        node = await Node(Caller(hub)).join(token)
        other = await hub.node()
        (job,) = hub.submit()
        assert await node.sync() == [f"{job}.1"]
        waiting = node.caller.say("sync", wait=20.0)
        with hub.db.transaction():
            tokens.revoke(hub.db, tokens.look(hub.db, token, time.time()).id, time.time())
        await hub.round()
        assert (await node.caller.hear(waiting))["bye"]
        assert hub.job(job).state is State.QUEUED
        assert "error" in await node.resume(Caller(hub), [])
        assert await other.sync() == [f"{job}.2"]

    _run(tmp_path, play)


def test_a_pilot_that_does_not_leave_when_told_to_is_given_up(tmp_path):
    async def play(hub: HubWithoutPort) -> None:
        node = await hub.node()
        (job,) = hub.submit()
        await node.sync()
        with hub.db.transaction():
            hub.db.run("pilot_ask", id=node.number, asked="stop")
        await hub.round()
        answer = await node.caller.ask("sync")
        assert answer["bye"]
        assert [one["key"] for one in answer["stop"]] == [f"{job}.1"]
        hub.roster.pilots[node.number].bye = 1e-9
        await hub.round()
        assert hub.db.value("pilot_state", id=node.number) == "down"
        assert hub.job(job).state is State.QUEUED

    _run(tmp_path, play)


def test_a_person_may_send_away_a_pilot_that_still_checks_its_node(tmp_path):
    async def play(hub: HubWithoutPort) -> None:
        hub.submit()
        node = Node(Caller(hub))
        node.number = (await node.caller.ask("hello", **node.hello(hub.token())))["pilot"]
        with hub.db.transaction():
            hub.db.run("pilot_ask", id=node.number, asked="drain")
        await hub.round()
        await node.caller.ask("ready")
        answer = await node.caller.ask("sync")
        assert (answer["jobs"], bool(answer["drain"])) == ([], True)

    _run(tmp_path, play)


def test_a_pilot_is_given_up_although_the_first_try_could_not_be_written(tmp_path):
    async def play(hub: HubWithoutPort) -> None:
        node = await hub.node()
        (job,) = hub.submit()
        await node.sync()
        hub.roster.pilots[node.number].deadline = 0.0
        failures = iter([errors.StoreUnavailable("no")])

        def fail(_ledger: TurnRecords, _db: Db, _now: float) -> None:
            for failure in failures:
                raise failure

        # Both are in one turn, which fails once.
        round_ = asyncio.ensure_future(hub.round())
        await asyncio.sleep(0)
        hub.queue.change(fail)
        await round_
        assert hub.db.value("pilot_state", id=node.number) == "lost"
        assert hub.job(job).state is State.QUEUED

    _run(tmp_path, play)


def test_a_token_that_is_revoked_ends_what_a_program_may_do(tmp_path):
    async def play(hub: HubWithoutPort) -> None:
        token = hub.token(tokens.TokenScope.USER, "ann")
        program = Caller(hub)
        await program.ask("login", protocol=1, token=token)
        job = {"spec": {"recipe": {"kind": "command", "argv": ["true"]}, "name": "x"}}
        assert len((await program.ask("submit", jobs=[job]))["ids"]) == 1
        with hub.db.transaction():
            tokens.revoke(hub.db, tokens.look(hub.db, token, time.time()).id, time.time())
        hub.gate.forget()
        for op, fields in (("submit", {"jobs": [job]}), ("cancel", {"jobs": [1]}),
                           ("ends", {"tag": "x"})):  # fmt: skip
            assert await program.refusal(op, **fields) == "E500"

    _run(tmp_path, play)


def test_a_program_changes_only_what_is_its_own(tmp_path):
    async def play(hub: HubWithoutPort) -> None:
        programs = {}
        for scope, owner in ((tokens.TokenScope.USER, "ann"), (tokens.TokenScope.USER, "bob"),
                             (tokens.TokenScope.READ, "ann")):  # fmt: skip
            programs[scope, owner] = one = Caller(hub)
            await one.ask("login", protocol=1, token=hub.token(scope, owner))
        job = {"spec": {"recipe": {"kind": "command", "argv": ["true"]}, "name": "x"}}
        ann, bob, reader = programs.values()
        (number,) = (await ann.ask("submit", jobs=[job]))["ids"]
        assert await reader.refusal("submit", jobs=[job]) == "E500"
        assert await reader.refusal("cancel", jobs=[number]) == "E500"
        assert await bob.refusal("cancel", jobs=[number]) == "E500"
        assert await ann.refusal("cancel", jobs=[HUGE]) == "E400"
        assert (await ann.ask("ends", tag="x", after=HUGE))["ends"] == []
        assert (await ann.ask("cancel", jobs=[number]))["states"] == {str(number): "cancelled"}
        stranger = Caller(hub)
        assert await stranger.refusal("submit", jobs=[job]) == "E500"

    _run(tmp_path, play)


def test_a_stranger_gets_little_memory_and_little_time(tmp_path):
    async def play(hub: HubWithoutPort) -> None:
        stranger = Caller(hub)
        stranger.link.data_received((8 << 20).to_bytes(4, "big"))
        assert stranger.wire.closed
        flood = Caller(hub)
        for _ in range(600):
            flood.say("resume", protocol=1, pilot=1, key="0" * 64)
            if flood.wire.paused:
                break
        assert flood.wire.paused
        node = await hub.node()
        for _ in range(200):
            node.caller.say("sync", wait=20.0)
        assert node.caller.wire.closed

    _run(tmp_path, play)


def test_launches_that_are_too_much_for_one_message_come_in_several(tmp_path):
    async def play(hub: HubWithoutPort) -> None:
        source = "x = '" + "y" * (3 << 20) + "'\ndef f(): pass\n"
        jobs = []
        for number in range(6):
            spec = JobSpec(Call(source=f"{source}# {number}", function="f"), "big")
            with hub.db.transaction():
                jobs.append(records.add(hub.db, NewJob(spec), time.time()))
        hub.queue.poke()
        node = await hub.node(cpus=6)
        first = await node.sync()
        assert 0 < len(first) < 6
        more = [*first]
        while len(more) < 6:
            more += await node.sync(wait=1.0)
        assert sorted(more) == sorted(f"{job}.1" for job in jobs)
        again = await node.resume(Caller(hub), first)
        found = [one["key"] for one in again["jobs"]]
        while len(found) < 6 - len(first):
            found += await node.sync(wait=1.0)
        assert sorted(found + first) == sorted(more)

    _run(tmp_path, play)


@pytest.mark.parametrize(
    "wrong", [{"key": "x" * 1000}, {"tag": "a\x1bb"}, {"tag": "y" * 1000}, {"after": [HUGE]},
              {"after": [-1]}]
)  # fmt: skip
def test_a_job_that_the_store_could_not_keep_is_refused(tmp_path, wrong):
    async def play(hub: HubWithoutPort) -> None:
        program = Caller(hub)
        await program.ask("login", protocol=1, token=hub.token(tokens.TokenScope.USER, "ann"))
        job = {"spec": {"recipe": {"kind": "command", "argv": ["true"]}, "name": "x"}}
        assert await program.refusal("submit", jobs=[{**job, **wrong}]) == "E200"

    _run(tmp_path, play)


def test_many_large_results_come_in_several_messages(tmp_path):
    async def play(hub: HubWithoutPort) -> None:
        program = Caller(hub)
        await program.ask("login", protocol=1, token=hub.token(tokens.TokenScope.USER, "ann"))
        call = {"spec": {"recipe": {"kind": "command", "argv": ["true"]}, "name": "x"}, "tag": "t"}
        ids = (await program.ask("submit", jobs=[call] * 6))["ids"]
        node = await hub.node(cpus=6)
        keys = await node.sync()
        large = "y" * (1 << 20)
        for key in keys:
            await node.sync(ended=[end(key, result=large)], drain=True)
        heard: list[int] = []
        after, messages = 0, 0
        while len(heard) < 6:
            found = await program.ask("ends", tag="t", after=after, wait=1.0)
            assert sum(len(one.get("result", "")) for one in found["ends"]) < 5 << 20
            heard += [one["job"] for one in found["ends"]]
            after, messages = found["after"], messages + 1
        assert sorted(heard) == sorted(ids)
        assert messages == 2

    _run(tmp_path, play)
