"""What a batch system may still have although nobody waits for it: it is called off when seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pilotage.batch.submission import Submission
from pilotage.batch.system.model import Item, Phase

#: How long a late copy of what was fenced is looked out for, in seconds.
_LOOKOUT_S = 120.0
_WAITING = frozenset({Phase.QUEUED, Phase.HELD})


class Strays:
    """Submissions of which something was fenced: a copy that turns up has nothing to run."""

    def __init__(self) -> None:
        #: By key, the batch system, and until when it is looked at.
        self._known: dict[str, tuple[str, float]] = {}

    def __bool__(self) -> bool:
        """Whether there is anything to look out for."""
        return bool(self._known)

    def add(self, key: str, batch: str, now: float) -> None:
        """Look out for a submission."""
        self._known[key] = (batch, now + _LOOKOUT_S)

    def batches(self) -> set[str]:
        """Name the batch systems that are to be looked at."""
        return {batch for batch, _ in self._known.values()}

    def unwanted(
        self, found: Mapping[str, Sequence[Item]], out: Mapping[str, Submission], now: float
    ) -> list[str]:
        """Say which of the listed are to be called off, by id."""
        ids = [
            item.id
            for key, items in found.items()
            if key in out or key in self._known
            for item in items
            if _unwanted(item, out.get(key))
        ]
        self._known = {
            key: (batch, until)
            for key, (batch, until) in self._known.items()
            if now < until or any(item.phase in _WAITING for item in found.get(key, ()))
        }
        return ids


def _unwanted(item: Item, one: Submission | None) -> bool:
    work = one.works.get(item.index) if one else None
    if work is None or work.over:
        # One that runs ends by itself, at once or when it has cleared up.
        return item.phase in _WAITING
    return work.stopping and item.phase is not Phase.OVER
