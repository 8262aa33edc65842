"""The table of states: complete, connected, and refusing all that it does not have."""

from __future__ import annotations

import pytest

from pilotage.base import errors
from pilotage.job import machine
from pilotage.job.model import State
from tests.suite import every


def reachable(*start: State) -> set[State]:
    found = set(start)
    while more := {new for old in found for new in machine.TRANSITIONS[old]} - found:
        found |= more
    return found


def test_every_state_has_a_sentence_of_its_own_and_a_row():
    assert set(machine.FACTS) == set(machine.TRANSITIONS) == set(State)
    sentences = [fact.sentence for fact in machine.FACTS.values()]
    assert all(sentences)
    assert len(set(sentences)) == len(sentences)


def test_the_ends_are_these():
    assert {State.DONE, State.FAILED, State.CANCELLED, State.REJECTED} == machine.FINAL


def test_every_state_can_be_reached_from_where_jobs_begin():
    assert reachable(State.QUEUED) == set(State)
    assert reachable(State.WAITING) == set(State)


def test_every_job_can_come_to_a_good_end_unless_it_is_there():
    assert all(State.DONE in reachable(state) for state in State)


def test_done_is_a_sink_and_bad_ends_lead_only_back_to_the_start():
    assert machine.TRANSITIONS[State.DONE] == frozenset()
    for state in machine.FINAL - {State.DONE}:
        assert machine.TRANSITIONS[state] == {State.QUEUED, State.WAITING}


def test_no_state_follows_itself():
    assert all(state not in machine.TRANSITIONS[state] for state in State)


def test_a_person_can_stop_whatever_has_not_ended():
    for state in set(State) - machine.FINAL:
        assert State.CANCELLED in machine.TRANSITIONS[state]
        assert state is State.HELD or State.HELD in machine.TRANSITIONS[state]


def test_what_the_table_has_is_allowed():
    with every.cases() as case:
        for old in State:
            for new in sorted(machine.TRANSITIONS[old]):
                with case(f"{old} to {new}"):
                    machine.check(7, old, new)


def test_what_the_table_does_not_have_is_refused():
    with every.cases() as case:
        for old in State:
            for new in sorted(set(State) - machine.TRANSITIONS[old]):
                with case(f"{old} to {new}"):
                    with pytest.raises(errors.IllegalTransition) as caught:
                        machine.check(7, old, new)
                    assert str(caught.value) == f"job 7 is {old}: it cannot become {new}"
                    assert "pilotage story 7" in caught.value.hint
