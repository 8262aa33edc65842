"""The directories where everything begins: they may come, go and be replaced."""

from __future__ import annotations

import os
from collections.abc import Callable

from pilotage.event.file.bits import EXISTED, MADE
from pilotage.event.file.model import Known, split, within
from pilotage.event.file.outbox import Outbox
from pilotage.event.file.survey import Survey, Visit
from pilotage.event.file.watches import Watches


def outermost(roots: tuple[str, ...]) -> list[str]:
    """Return the roots that are not below others."""
    kept: list[str] = []
    for root in sorted(set(roots)):
        if not any(within(root, top) for top in kept):
            kept.append(root)
    return kept


class Roots:
    """The roots, and which directory was found at each."""

    def __init__(self, known: Known, outbox: Outbox, watches: Watches, survey: Survey) -> None:
        """Begin with none."""
        self._known = known
        self._outbox = outbox
        self._watches = watches
        self._survey = survey
        self._paths: list[str] = []
        self._found: dict[str, tuple[int, int] | None] = {}

    def __contains__(self, path: str) -> bool:
        """Tell whether a path is a root."""
        return path in self._found

    def reshape(self, roots: tuple[str, ...]) -> None:
        """Take other roots; let go of what is not below them any more."""
        self._paths = outermost(roots)
        for path in sorted([*self._watches.polled, *self._watches.tree.by_path]):
            kept = any(within(path, root) for root in self._paths)
            if not kept or not self._survey.enters(path):
                self._watches.drop(path)
                self._outbox.gone(*split(path))
                self._outbox.tree_gone(path)

    def forget(self) -> None:
        """Scan all at the next time."""
        self._found.clear()

    def scan(self, after_each: Callable[[], None]) -> bool:
        """Scan the roots that came, went or were replaced; tell whether to do so again at once."""
        visits: list[Visit] = []
        for root in self._paths:
            now = _identity(root)
            if root in self._found and self._found[root] == now and self._held(root):
                continue
            if not visits:
                self._outbox.flush()
            # A root that was known to be missing was made under our eyes.
            how = MADE if root in self._found and self._found[root] is None else EXISTED
            self._found[root] = now
            directory, name = split(root)
            row = self._known.listing(directory).get(name)
            visits.append(Visit(path=root, row=row, how=how, top=True))
        if visits:
            self._survey.scan(visits, after_each)
            self._outbox.send()
        return self._await()

    def _held(self, root: str) -> bool:
        """Tell whether a root, if it is there, is looked after.

        One that was deleted and made again may be the same directory by its numbers.
        """
        if self._found[root] is None:
            return True
        return root in self._watches.tree.by_path or root in self._watches.polled

    def _await(self) -> bool:
        """Watch for missing roots; tell whether one was made before its watch was set."""
        missing = [root for root in self._paths if self._found[root] is None]
        self._watches.await_roots(missing)
        return any(_identity(root) is not None for root in missing)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        now = os.stat(path)
    except OSError:
        return None
    return now.st_dev, now.st_ino
