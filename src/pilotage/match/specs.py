"""Definitions of jobs by number; few, and shared by many jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotage.job import records

if TYPE_CHECKING:
    from pilotage.job.model import JobSpec
    from pilotage.store import Db

#: Definitions kept at hand.
_MOST = 20_000


class Specs:
    """Reads each definition once, as long as it is at hand."""

    def __init__(self) -> None:
        self._known: dict[int, JobSpec] = {}

    def get(self, db: Db, number: int) -> JobSpec:
        """Read a definition."""
        spec = self._known.get(number)
        if spec is None:
            if len(self._known) >= _MOST:
                # The oldest is the least likely to be asked for again.
                del self._known[next(iter(self._known))]
            spec = self._known[number] = records.read_spec(db.value("spec_body", id=number))
        return spec
