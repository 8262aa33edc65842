"""Who may change what: owners their jobs, administrators all; to others nothing exists."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from pilotage.agent import records
from pilotage.agent.admission import store_messages
from pilotage.agent.controls import ControlResult, Controls, execute
from pilotage.agent.model import JudgedMessage
from pilotage.agent.settings import RunningLimits, Settings
from pilotage.batch import records as sites
from pilotage.bus import wire
from pilotage.bus.model import Answer, Follow, FollowedJob
from pilotage.job.model import State
from pilotage.testing.bus import MemoryBus
from tests.corpus import injection
from tests.rigs.broker import agent_parts
from tests.rigs.broker.agent_parts import Store, control
from tests.unit.agent.test_admission import judged

SETTINGS = agent_parts.settings()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with agent_parts.store(tmp_path, sim=agent_parts.app()) as made:
        for user in ("alice", "bob"):
            for key in ("k1", "k2"):
                body = agent_parts.body(key=key)
                one = JudgedMessage(user, "job.mira", body, judged(body, user=user))
                made.writer.do(partial(store_messages, arrivals=[one], settings=SETTINGS, now=1.0))
        yield made


def obeyed(
    store: Store, sent: bytes, user: str = "alice", *, again: bool = False,
    settings: Settings = SETTINGS,
) -> ControlResult:  # fmt: skip
    one = agent_parts.message(sent, user, again=again)
    return store.writer.do(lambda db: execute(db, one, settings, 5.0))


def answer(store: Store, sent: bytes, user: str = "alice", **more: Any) -> Answer:
    found = wire.decode(obeyed(store, sent, user, **more).answers[0])
    assert isinstance(found, Answer)
    return found


def states(store: Store) -> list[str]:
    return [str(one.state) for one in store.jobs()]


def test_an_owner_cancels_by_number_and_by_key(store: Store):
    found = answer(store, control("cancel", jobs=[1], keys=["k2"], reason="wrong input"))
    assert [(one.job, one.key, one.state) for one in found.results] == [
        (1, "", "cancelled"), (2, "k2", "cancelled"),
    ]  # fmt: skip
    assert states(store) == ["cancelled", "cancelled", "queued", "queued"]
    assert store.jobs()[0].reason == "cancelled by alice: wrong input"


@pytest.mark.parametrize("verb", ["cancel", "hold", "release", "retry", "query"])
def test_to_others_a_job_does_not_exist(store: Store, verb: str):
    theirs = answer(store, control(verb, jobs=[3]))
    missing = answer(store, control(verb, jobs=[999]))
    assert theirs.results == missing.results
    assert not theirs.results[0].ok
    assert theirs.results[0].job == 0
    assert states(store) == ["queued"] * 4


def test_a_key_is_that_of_who_asks(store: Store):
    assert answer(store, control("cancel", keys=["k1"]), "bob").results[0].job == 3
    assert not answer(store, control("cancel", keys=["k1"]), "carol").results[0].ok


def test_an_administrator_may_do_all(store: Store):
    found = answer(store, control("hold", jobs=[1, 3], keys=["k2"]), "boss")
    assert [one.ok for one in found.results] == [True] * 3
    assert answer(store, control("query"), "boss").counts == {"held": 3, "queued": 1}
    assert answer(store, control("query")).counts in ({"held": 1, "queued": 1}, {"held": 2})


@pytest.mark.parametrize("verb", ["drain", "resume"])
def test_only_administrators_drain_the_site(store: Store, verb: str):
    found = answer(store, control(verb))
    assert not found.ok
    assert "may not" in found.text
    assert sites.asked(store.db, "mira") == ""
    assert [one["reason"]["code"] for one in store.said("refused")] == ["denied"]


def test_a_drain_is_what_the_site_reads_itself(store: Store):
    assert answer(store, control("drain"), "boss").draining
    assert sites.asked(store.db, "mira") == "drain"
    assert not answer(store, control("resume"), "boss").draining
    assert sites.asked(store.db, "mira") == ""


def test_done_twice_is_done_once(store: Store):
    answer(store, control("cancel", jobs=[1]))
    before = len(store.words())
    found = answer(store, control("cancel", jobs=[1]))
    assert (found.results[0].ok, found.results[0].state) == (True, "cancelled")
    assert len(store.words()) == before
    for verb, state in (("hold", "held"), ("hold", "held"), ("release", "queued"),
                        ("release", "queued")):  # fmt: skip
        assert answer(store, control(verb, jobs=[2])).results[0].ok
        assert states(store)[1] == state


def test_a_retry_that_is_delivered_again_is_not_one_more(store: Store):
    sent = control("retry", jobs=[1])
    answer(store, control("cancel", jobs=[1]))
    first = answer(store, sent)
    assert states(store)[0] == "queued"
    answer(store, control("cancel", jobs=[1]))
    assert answer(store, sent, again=True) == first
    assert states(store)[0] == "cancelled"
    assert answer(store, sent).results[0].ok, "one that is sent anew is heard anew"
    assert states(store)[0] == "queued"


def test_what_cannot_be_is_said_of_each_job(store: Store):
    answer(store, control("cancel", jobs=[1]))
    found = answer(store, control("release", jobs=[1, 2]))
    assert not found.results[0].ok
    assert "not held" in found.results[0].text
    assert found.results[1].ok


def test_what_is_released_waits_for_room_as_all_others(store: Store):
    few = agent_parts.settings(limits=RunningLimits(user=1))
    answer(store, control("hold", jobs=[1]))
    found = answer(store, control("release", jobs=[1]), settings=few)
    assert found.results[0].state == "waiting"
    answer(store, control("cancel", jobs=[2]), settings=few)
    answer(store, control("release", jobs=[1]), settings=few)
    assert states(store)[:2] == ["queued", "cancelled"]


def test_the_answer_goes_where_replies_may_go(store: Store):
    answer(store, control("query", jobs=[1], reply="status.me"))
    (told,) = store.said("status.me")
    assert (told["kind"], told["results"][0]["state"]) == ("answer", "queued")
    assert not answer(store, control("query", jobs=[1], reply="job.mira")).ok
    assert store.said("job.mira") == []


@pytest.mark.parametrize(
    "sent, user",
    [
        (b"", "alice"), (b"{}", "alice"), (control("cancel"), "alice"),
        (control("erase", jobs=[1]), "alice"), (agent_parts.body(), "alice"),
        (control("cancel", jobs=[1], site="other"), "alice"), (control("cancel", jobs=[1]), ""),
        (control("cancel", jobs=[1], user="alice"), "bob"),
        *((raw, "boss") for raw in injection.RAW),
    ],
    ids=lambda value: repr(value)[:30],
)  # fmt: skip
def test_bad_ones_change_nothing_and_are_kept(store: Store, sent: bytes, user: str):
    assert not answer(store, sent, user).ok
    assert states(store) == ["queued"] * 4
    assert len(records.refused(store.db, 10)) == 1


def test_an_answer_on_many_jobs_comes_in_parts_that_can_be_read(store: Store):
    found = obeyed(store, control("query", jobs=list(range(1, 2501)))).answers
    parts = [wire.decode(one) for one in found]
    assert [(len(one.results), one.more) for one in parts if isinstance(one, Answer)] == [
        (1000, True), (1000, True), (500, False),
    ]  # fmt: skip


def test_who_may_follow_a_job(store: Store):
    asked = wire.encode(
        Follow(
            site="mira",
            seconds=9.0,
            jobs=(FollowedJob(key="k1", stdout=7), FollowedJob(key="nosuch")),
        )
    )
    mine, others = (obeyed(store, asked, user) for user in ("alice", "bob"))
    assert (mine.seconds, mine.answers, mine.changed) == (9.0, (), False)
    assert {job: one.stdout for job, one in mine.follow.items()} == {1: 7}
    assert list(others.follow) == [3]
    assert obeyed(store, asked, "carol").follow == {}


@pytest.mark.parametrize("change", [{"site": "other"}, {"jobs": []}, {"seconds": 1e9}])
def test_what_cannot_be_followed_is_refused(store: Store, change: dict[str, Any]):
    asked = {"v": 1, "kind": "follow", "site": "mira", "jobs": [{"key": "k1"}]}
    assert obeyed(store, json.dumps(asked).encode()).follow
    assert not obeyed(store, json.dumps(asked | change).encode()).follow


async def test_a_request_is_answered_after_it_is_done(store: Store):
    bus = MemoryBus()
    poked: list[str] = []
    one = Controls(
        bus, store.writer, lambda: SETTINGS, lambda: 5.0, lambda: poked.append(states(store)[0]),
        lambda _jobs, _seconds: None,
    )  # fmt: skip
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.run)
        await anyio.sleep(0.01)
        said = await bus.known_as("alice").request("control.mira", control("cancel", jobs=[1]), 20)
        tasks.cancel_scope.cancel()
    assert json.loads(said)["results"][0]["state"] == "cancelled"
    assert poked == [State.CANCELLED]
