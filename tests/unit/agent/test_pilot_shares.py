"""Hubs share a factory: each within its limit, none at the cost of another."""

from __future__ import annotations

import collections

from hypothesis import given
from hypothesis import strategies as st

from pilotage.agent.pilots import OrderedPilot, PilotLimit, PilotUse, share

SITE = "batch"


def claims(hub: str, count: int, cores: int = 1, first: int = 1) -> list[OrderedPilot]:
    return [OrderedPilot(hub, number, SITE, cores) for number in range(first, first + count)]


def taken(wanted, limits, uses=None, room=100, leaving=0):
    verdict = share(wanted, limits, uses or {}, {SITE: room}, {SITE: leaving})
    return collections.Counter(one.hub for one in verdict.taken), verdict


def test_a_hub_gets_no_more_than_its_cores():
    counts, verdict = taken({"a": claims("a", 10, cores=3)}, {"a": PilotLimit(10, 100)})
    assert counts == {"a": 3}
    assert verdict.why["a"] == "9 of 10 cores for this hub are taken"


def test_no_more_wait_than_may():
    uses = {"a": PilotUse(cores=8, waiting=2, at={SITE: 2})}
    counts, verdict = taken({"a": claims("a", 10)}, {"a": PilotLimit(100, 5)}, uses)
    assert counts == {"a": 3}
    assert verdict.why["a"] == "5 of its pilots wait already"


def test_those_wanted_first_come_first():
    _, verdict = taken({"a": claims("a", 5)}, {"a": PilotLimit(2, 100)})
    assert [one.number for one in verdict.taken] == [1, 2]


def test_a_hub_that_asks_for_much_does_not_take_all():
    wanted = {"a": claims("a", 500), "b": claims("b", 3)}
    counts, _ = taken(wanted, {"a": PilotLimit(500, 500), "b": PilotLimit(500, 500)}, room=10)
    assert counts == {"a": 7, "b": 3}


def test_places_go_by_parts_of_limits():
    wanted = {"a": claims("a", 100), "b": claims("b", 100)}
    counts, _ = taken(wanted, {"a": PilotLimit(30, 100), "b": PilotLimit(10, 100)}, room=20)
    assert counts == {"a": 15, "b": 5}


def test_who_has_much_already_waits_for_the_other():
    uses = {"a": PilotUse(cores=8, waiting=0)}
    wanted = {"a": claims("a", 5), "b": claims("b", 5)}
    counts, verdict = taken(wanted, {"a": PilotLimit(10, 9), "b": PilotLimit(10, 9)}, uses, room=3)
    assert counts == {"b": 3}
    assert verdict.why["a"] == "batch has as many pilots as it may"


def test_those_that_only_wait_make_room_until_both_have_alike():
    uses = {"a": PilotUse(cores=10, waiting=10, at={SITE: 10})}
    limits = {"a": PilotLimit(10, 10), "b": PilotLimit(10, 10)}
    counts, verdict = taken({"b": claims("b", 10)}, limits, uses, room=0)
    assert not counts
    assert verdict.back == {("a", SITE): 5}
    # Those that are on their way out count: nobody is called off twice for the same place.
    _, verdict = taken({"b": claims("b", 10)}, limits, uses, room=0, leaving=10)
    assert verdict.back == {}


def test_what_runs_makes_no_room():
    uses = {"a": PilotUse(cores=10, waiting=0)}
    limits = {"a": PilotLimit(10, 10), "b": PilotLimit(10, 10)}
    _, verdict = taken({"b": claims("b", 10)}, limits, uses, room=0)
    assert verdict.back == {}


def test_a_hub_without_limits_gets_nothing():
    counts, _ = taken({"stranger": claims("stranger", 3)}, {})
    assert not counts


@given(
    st.dictionaries(
        st.sampled_from("abcd"),
        st.tuples(st.integers(1, 40), st.integers(1, 20), st.integers(0, 60), st.integers(1, 4)),
        min_size=1,
    ),
    st.integers(0, 60),
)
def test_nobody_is_above_a_limit_and_no_place_stays_free_that_somebody_may_have(hubs, room):
    wanted = {hub: claims(hub, count, cores) for hub, (_, _, count, cores) in hubs.items()}
    limits = {hub: PilotLimit(most, pending) for hub, (most, pending, _, _) in hubs.items()}
    counts, _ = taken(wanted, limits, room=room)
    assert counts.total() <= room
    for hub, (most, pending, count, cores) in hubs.items():
        assert counts[hub] * cores <= most
        assert counts[hub] <= pending
        may = min(most // cores, pending, count)
        assert counts[hub] == may or counts.total() == room
