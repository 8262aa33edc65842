"""Whose work a batch system does, and how they hear of it."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from pilotage.batch.submission import Submission, Work
from pilotage.batch.system.model import Item


class End(msgspec.Struct, frozen=True):
    """How a work ended: its own evidence, the scheduler's word, or nothing but its absence."""

    evidence: dict[str, Any] | None = None
    item: Item | None = None
    #: Why it never began and never will; empty if it did or may have.
    never: str = ""
    #: Whether the batch system would refuse it again.
    final: bool = False


class Party(Protocol):
    """Whose work it is: the jobs of a site, or its pilots."""

    def begun(self, works: list[tuple[Submission, Work]], words: str) -> None:
        """Hear that works run."""

    def taken(self, one: Submission) -> None:
        """Hear that the batch system has a submission."""

    def said(self, one: Submission, words: str) -> None:
        """Hear the last word about what waits; `words` of a work, if it has some, tell more."""

    def over(self, one: Submission, work: Work, end: End) -> None:
        """Hear that a work is over; it stays until `forget` is called."""

    async def items(self, one: Submission, key: str) -> list[dict[str, Any]]:
        """Write the orders of what is live of a submission anew, under a key."""
        ...
