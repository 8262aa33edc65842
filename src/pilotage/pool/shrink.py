"""Pools that a person makes smaller at once: who stays, who finishes, who is stopped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from pilotage.base import errors
from pilotage.pilot import view
from pilotage.pilot.model import PilotState
from pilotage.pilot.view import PilotView
from pilotage.pool import files
from pilotage.pool import view as pool_view
from pilotage.pool.reading import Set
from pilotage.store import Db

_WAITS = frozenset[str]({PilotState.REQUESTED, PilotState.SUBMITTED})


class Leaving(msgspec.Struct, frozen=True):
    """The pilots that go."""

    #: Those that finish what they run, if anything, and those that are stopped.
    drain: tuple[int, ...] = ()
    stop: tuple[int, ...] = ()
    #: Jobs that are ended and queued again.
    jobs: int = 0


def choose(pilots: Sequence[PilotView], cores: int, each: int, *, kill: bool) -> Leaving:
    """Say who goes of the pilots of a pool that shall have so many cores: the busiest stay.

    Nobody who runs something is stopped, unless it is to be killed.
    """
    drain: list[int] = []
    stop: list[int] = []
    jobs = left = 0
    for one in sorted(pilots, key=_worth):
        size = one.facts.cpus if one.facts else each
        if one.state != PilotState.DRAINING and left + size <= cores:
            left += size
        elif kill and one.running:
            stop.append(one.id)
            jobs += one.running
        elif one.state != PilotState.DRAINING:
            drain.append(one.id)
    return Leaving(tuple(drain), tuple(stop), jobs)


def _worth(one: PilotView) -> tuple[bool, int, bool, int]:
    """Order pilots: those that run most first, those that wait last and of them the newest."""
    return one.state == PilotState.DRAINING, -one.used, one.state in _WAITS, one.id


def leaving(db: Db, root: Path, name: str, cores: int, *, kill: bool) -> Leaving:
    """Say who would go."""
    found = files.read(root, name)
    mine = [one for one in view.pilots(db) if one.pool == name and one.id]
    return choose(mine, cores, found.pilot.cpus, kill=kill)


def shrink(db: Db, root: Path, name: str, cores: int, who: Leaving) -> str:
    """Have pilots go, and the pool not grow again; say in words how it may.

    A pool that shall have less than one pilot is paused, since no maximum is as small as that.
    """
    if cores < 0:
        raise errors.UsageError(f"a pool cannot have {cores} cores")
    found, before = files.read(root, name), pool_view.changed(db, name)
    view.ask(db, who.drain, "drain")
    view.ask(db, who.stop, "stop")
    if cores < found.pilot.cpus:
        pool_view.ask(db, root, name, pause=True)
        return f"it is paused: `pilotage pool resume {name}` lets it grow again"
    least = min(cores, found.minimum if before.minimum is None else before.minimum)
    given: Set = msgspec.structs.replace(before, maximum=cores, minimum=least)
    pool_view.change(db, root, name, given)
    return f"`pilotage pool set {name} --reset` lets it grow again"
