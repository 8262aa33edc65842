"""Pools as commands and the page show them, and requests to pools, by way of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pilotage.base import errors
from pilotage.edge import view
from pilotage.edge.view import PilotSite
from pilotage.pilot import view as pilot_view
from pilotage.pilot.model import PilotState
from pilotage.pilot.view import PilotView
from pilotage.pool import decide, files, outside
from pilotage.pool import site as pool_site
from pilotage.pool import state as pool_model
from pilotage.pool.files import Outside, Pool
from pilotage.pool.state import BY_PERSON, PAUSED, PoolOverrides, PoolRow, PoolStep
from pilotage.pool.words import volume
from pilotage.store import Db

#: The stored state of a pool is valid for this many intervals, and some seconds.
_FRESH = 3.0
_FRESH_S = 10.0
#: Most samples in one answer.
_MOST = 100_000


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """A pool, and what is known of it."""

    name: str
    site: str = ""
    about: str = ""
    #: What decides.
    control: str = ""
    #: `controlled`, `asks first`, `backs off`, `paused`, `unheard`,
    #: `not controlled` or `bad file`.
    state: str
    #: What needs a person, or what is wrong with its file.
    trouble: str = ""
    #: What the site says of its pilots that wait there.
    said: str = ""
    #: What was decided last and why, and when.
    words: str = ""
    looked: float | None = None
    #: Cores that it has, should have, that are starting and that are draining.
    supply: float = 0.0
    demand: float = 0.0
    queued: float = 0.0
    booting: float = 0.0
    draining: float = 0.0
    #: Cores of queued jobs that it could run.
    waiting: float = 0.0
    utilisation: float | None = None
    allocation: float | None = None
    #: How busy payloads keep the cores that they have, as pilots measured; and whether too little.
    busy: float | None = None
    starved: bool = False
    #: Bounds in cores, and pilots that may wait at once.
    minimum: int = 0
    maximum: int = 0
    pending: int = 0
    ask_above: int = 0
    #: Cores of one pilot.
    cpus: int = 1
    #: What a person has set instead of what the file says.
    changed: PoolOverrides = PoolOverrides()
    #: The external controller, its demand and when it was received, as text.
    steered: str = ""
    #: Cores that were asked for from outside, by whom, when, and how long a word counts in seconds.
    asked: float | None = None
    by: str = ""
    heard: float | None = None
    silence: float = 0.0


class PoolSample(msgspec.Struct, frozen=True):
    """How a pool was."""

    time: float
    pool: str
    supply: float
    demand: float
    utilisation: float | None
    allocation: float | None
    queued: float
    waiting: float


def pools(db: Db, root: Path, now: float) -> list[PoolView]:
    """List all pools that the project has files of."""
    rows, agents = pool_model.rows(db), view.pilot_sites(db, now)
    found = [
        _look(root, name, rows.get(name, PoolRow(name)), agents, now) for name in files.names(root)
    ]
    return [msgspec.structs.replace(one, said=pool_model.said(db, one.name)) for one in found]


def pool(db: Db, root: Path, name: str, now: float) -> PoolView:
    """Look at one pool."""
    if name not in files.names(root):
        files.read(root, name)
    row, agents = pool_model.rows(db).get(name, PoolRow(name)), view.pilot_sites(db, now)
    found = _look(root, name, row, agents, now)
    return msgspec.structs.replace(found, said=pool_model.said(db, name))


def plan(db: Db, root: Path, now: float) -> dict[str, PoolStep]:
    """Return the steps for the last observations; pools without one are left out."""
    rows = pool_model.rows(db)
    known: dict[str, Pool] = {}
    for name in files.names(root):
        if name in rows and rows[name].seen is not None:
            known[name] = rows[name].changed.apply(files.read(root, name))
    seen = {name: found for name in known if (found := rows[name].seen) is not None}
    return decide.decide(known, rows, seen, pool_model.needs(db), now)[0]


def ask(db: Db, root: Path, name: str, *, pause: bool) -> None:
    """Pause or resume a pool."""
    files.read(root, name)
    db.run("pool_ask", name=name, asked=PAUSED if pause else "", reason=BY_PERSON if pause else "")


def change(db: Db, root: Path, name: str, given: PoolOverrides) -> Pool:
    """Set what holds instead of what the file says; return what the pool is to be."""
    found = files.read(root, name)
    made = given.apply(found)
    try:
        files.check(name, made)
    except errors.ConfigError as error:
        raise errors.UsageError(str(error), hint=error.hint) from error
    db.run("pool_set", name=name, changed=msgspec.json.encode(given).decode())
    return made


def changed(db: Db, name: str) -> PoolOverrides:
    """Read what a person has set."""
    return pool_model.rows(db).get(name, PoolRow(name)).changed


def samples(db: Db, since: float, name: str = "", step: float = 0.001) -> list[PoolSample]:
    """Return how pools were, the oldest first: of each step, in seconds, the last."""
    rows = db.rows("pool_samples", since=since, pool=name, step=step, most=_MOST)
    return [PoolSample(*row) for row in rows]


def _look(
    root: Path, name: str, row: PoolRow, agents: Mapping[str, PilotSite], now: float
) -> PoolView:  # fmt: skip
    try:
        found = row.changed.apply(files.read(root, name))
    except errors.PilotageError as error:
        return PoolView(name=name, state="bad file", trouble=str(error), words=row.words)
    seen = row.seen
    reading = msgspec.to_builtins(seen.reading) if seen else {}
    told = {key: reading[key] for key in reading if key != "demand"}
    return PoolView(
        name=name, site=found.site, about=found.about, control=_kind(found),
        state=_state(found, row, now), trouble=row.reason or _siteless(root, found.site, agents),
        words=row.words, looked=row.looked or None, demand=row.demand,
        waiting=seen.waiting if seen else 0.0,
        minimum=found.minimum, maximum=found.maximum, pending=found.pending,
        ask_above=found.ask_above, cpus=found.pilot.cpus, changed=row.changed,
        busy=seen.meter.busy if seen else None, starved=bool(seen and seen.meter.starved),
        **told, **_outside(found, row, now),
    )  # fmt: skip


def _outside(found: Pool, row: PoolRow, now: float) -> dict[str, Any]:
    """Return the external controller of a pool, if it has one."""
    if not isinstance(found.control, Outside):
        return {}
    silence, told = found.control.seconds, row.told
    facts = {"asked": told.demand, "by": told.by, "heard": told.at} if told else {}
    return {"steered": outside.words(told, silence, now), "silence": silence, **facts}


def _siteless(root: Path, site: str, agents: Mapping[str, PilotSite]) -> str:
    """Return what is wrong with the site of a pool; empty if nothing is."""
    try:
        pool_site.read(root, site, agents)
    except errors.PilotageError as error:
        return f"it stays as it was: {error}"
    found = agents.get(site)
    return found.closed or found.trouble if found else ""


def _kind(found: Pool) -> str:
    return str(type(found.control).__struct_config__.tag)


def _state(found: Pool, row: PoolRow, now: float) -> str:
    if row.asked:
        return row.asked
    if not row.looked or now - row.looked > _FRESH * found.seconds + _FRESH_S:
        return "not controlled"
    if not row.reason:
        return "controlled"
    if isinstance(found.control, Outside) and _unheard(found.control, row, now):
        return "unheard"
    return "backs off" if now < row.care.until else "asks first"


def _unheard(control: Outside, row: PoolRow, now: float) -> bool:
    return bool(outside.unheard(row.told, control.seconds, now))


_HOUR_S = 3600.0


class Account(msgspec.Struct, frozen=True):
    """Core-seconds of a pool, as far as its jobs are stored."""

    #: Of pilots from when they came until they left.
    held: float = 0.0
    #: Of payloads that ran there.
    used: float = 0.0
    #: Those of them that ran in vain, since their pilot was lost.
    lost: float = 0.0

    @property
    def part(self) -> float | None:
        """The fraction used successfully; None if nothing was held."""
        return min(1.0, (self.used - self.lost) / self.held) if self.held > 0 else None

    def words(self) -> str:
        """Return it as text; empty if nothing was held."""
        if self.part is None:
            return ""
        lost = f", {_hours(self.lost)} of these in vain" if self.lost else ""
        return f"{_hours(self.used)} of {_hours(self.held)} core-hours held ({self.part:.0%}){lost}"


def _hours(seconds: float) -> str:
    hours = seconds / _HOUR_S
    return f"{hours:.2g}" if hours < 10 else volume(round(hours))


def accounts(db: Db, now: float, pool: str = "") -> dict[str, Account]:
    """Sum up one pool or all; slow, since it reads every attempt."""
    used = {name: sums for name, *sums in db.rows("pool_used", pool=pool, now=now)}
    held = db.rows("pool_held", pool=pool, now=now)
    return {name: Account(seconds, *used.get(name, ())) for name, seconds in held}


_WAITS = frozenset[str]({PilotState.REQUESTED, PilotState.SUBMITTED})


class Leaving(msgspec.Struct, frozen=True):
    """The pilots that leave."""

    #: Those that finish what they run, if anything, and those that are stopped.
    drain: tuple[int, ...] = ()
    stop: tuple[int, ...] = ()
    #: Jobs that are ended and queued again.
    jobs: int = 0


def choose(pilots: Sequence[PilotView], cores: int, each: int, *, kill: bool) -> Leaving:
    """Return the pilots that leave a pool which keeps `cores` cores: the busiest stay.

    Pilots that run jobs are stopped only with `kill`.
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
    """Return the pilots that would leave."""
    found = files.read(root, name)
    mine = [one for one in pilot_view.pilots(db) if one.pool == name and one.id]
    return choose(mine, cores, found.pilot.cpus, kill=kill)


def shrink(db: Db, root: Path, name: str, cores: int, who: Leaving) -> str:
    """Remove pilots and keep the pool from growing; return how to undo that.

    A pool that shall have less than one pilot is paused, since no maximum is as small as that.
    """
    if cores < 0:
        raise errors.UsageError(f"a pool cannot have {cores} cores")
    found, before = files.read(root, name), changed(db, name)
    pilot_view.ask(db, who.drain, "drain")
    pilot_view.ask(db, who.stop, "stop")
    if cores < found.pilot.cpus:
        ask(db, root, name, pause=True)
        return f"it is paused: `pilotage pool resume {name}` lets it grow again"
    least = min(cores, found.minimum if before.minimum is None else before.minimum)
    given: PoolOverrides = msgspec.structs.replace(before, maximum=cores, minimum=least)
    change(db, root, name, given)
    return f"`pilotage pool set {name} --reset` lets it grow again"
