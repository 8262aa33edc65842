"""The states of a job: a sentence each, which are final, and which may follow which."""

from __future__ import annotations

import msgspec

from pilotage.base import errors
from pilotage.job.model import State


class Fact(msgspec.Struct, frozen=True):
    """Description of a state."""

    #: For people.
    sentence: str
    #: Whether nothing follows.
    final: bool = False


FACTS: dict[State, Fact] = {
    State.WAITING: Fact("waits for other jobs"),
    State.QUEUED: Fact("waits for a free place to run"),
    State.STAGING_IN: Fact("its input is being brought to the site"),
    State.READY: Fact("its input is there and it waits to start"),
    State.SUBMITTED: Fact("is in the queue of a batch system or of another hub"),
    State.RUNNING: Fact("its payload runs"),
    State.STAGING_OUT: Fact("its results are being checked and brought back"),
    State.HELD: Fact("a person or a guard stopped it; the reason says why"),
    State.DONE: Fact("ended well and its outputs are there", final=True),
    State.FAILED: Fact("ended badly and will not be tried again", final=True),
    State.CANCELLED: Fact("was cancelled; the reason says by whom or why", final=True),
    State.REJECTED: Fact("can never run; the reason says why", final=True),
}

FINAL = frozenset(state for state, fact in FACTS.items() if fact.final)

_STOPS = frozenset({State.HELD, State.CANCELLED})
_BACK = frozenset({State.QUEUED, State.FAILED})

TRANSITIONS: dict[State, frozenset[State]] = {
    State.WAITING: _STOPS | {State.QUEUED, State.REJECTED},
    State.QUEUED: _STOPS
    | {State.STAGING_IN, State.READY, State.SUBMITTED, State.RUNNING, State.REJECTED},
    State.STAGING_IN: _STOPS | _BACK | {State.READY, State.REJECTED},
    State.READY: _STOPS | _BACK | {State.SUBMITTED, State.RUNNING, State.REJECTED},
    # Another hub reports only the end.
    State.SUBMITTED: _STOPS
    | _BACK
    | {State.RUNNING, State.STAGING_OUT, State.DONE, State.REJECTED},
    State.RUNNING: _STOPS | _BACK | {State.STAGING_OUT, State.DONE},
    State.STAGING_OUT: _STOPS | _BACK | {State.DONE},
    State.HELD: frozenset({State.WAITING, State.QUEUED, State.CANCELLED}),
    State.DONE: frozenset(),
    # A person may try a job again: under a new attempt number, by `pilotage retry`.
    State.FAILED: frozenset({State.QUEUED, State.WAITING}),
    State.CANCELLED: frozenset({State.QUEUED, State.WAITING}),
    State.REJECTED: frozenset({State.QUEUED, State.WAITING}),
}


def check(job: int, old: State, new: State) -> None:
    """Refuse a change of state that the table does not have."""
    if new not in TRANSITIONS[old]:
        message = f"job {job} is {old}: it cannot become {new}"
        raise errors.IllegalTransition(
            message, hint=f"`pilotage story {job}` shows how it got there"
        )
