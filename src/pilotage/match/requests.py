"""Requests of places to the matchmaker, and its answers."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pilotage.job import moves
from pilotage.job.model import JobSpec


class Stop(msgspec.Struct, frozen=True):
    """A job that a place is to end."""

    job: int
    attempt: int
    words: str


class Granted(msgspec.Struct):
    """The answer of a turn to a place."""

    claims: list[moves.Claim]
    stops: list[Stop]
    #: The definitions of what was claimed, by number.
    specs: dict[int, JobSpec] = {}


def _no_matter(_error: Exception) -> None:
    """Ignore the error."""


class PlaceRequest(msgspec.Struct, eq=False):
    """A request of a place: its ended jobs, and a callback for the answer."""

    place: int
    answer: Callable[[Granted], None]
    ends: list[moves.EndedJob] = []
    #: Plain jobs that it would take beyond its free cores.
    ahead: int = 0
    #: Whether it waits when there is nothing to do.
    park: bool = False
    #: Called with the error if the request cannot be handled at all.
    refuse: Callable[[Exception], None] = _no_matter


class TurnOutcome(msgspec.Struct):
    """The result of a turn, once it is on disk."""

    answers: list[tuple[PlaceRequest, Granted]]
    ended: list[tuple[int, int]]
    due: float | None
    #: Who said what cannot be dealt with, and why.
    refused: list[tuple[PlaceRequest, Exception]] = []
    #: Jobs in the queue that are workflows.
    workflows: list[int] = []
