"""Keeps pools of pilots as large as they are used: sees, decides and acts, a turn at a time.

All that is decided is in the store with the pilots that it asks for, in one transaction: whoever
comes after a crash finds the pilots by the name of their pool, and goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from pilotage.base import crash, errors, text
from pilotage.batch.model import SiteSettings
from pilotage.batch.pilot_request import PilotRequest
from pilotage.edge import view
from pilotage.match.cluster import Cluster
from pilotage.match.queue import Queue
from pilotage.match.turn import Ledger
from pilotage.pilot.model import State
from pilotage.pilot.table import Roster
from pilotage.pool import decide, files, loop, observe
from pilotage.pool import pilots as pool_drones
from pilotage.pool import reading as pool_model
from pilotage.pool import site as pool_site
from pilotage.pool.files import Aimd, Pool
from pilotage.pool.pilots import Drone
from pilotage.pool.prospects import attributes, given, holds, sees, suits
from pilotage.pool.reading import BY_PERSON, Row, Seen, Step
from pilotage.store import Db

_log = logging.getLogger("pilotage.pool")
#: Where a test can kill the process.
POINTS = ("pool.seen", "pool.decided", "pool.acted", "pool.written")
_IDLE_S = 5.0
_DAY_S = 86400.0
_GONE = "its pool has no file any more"
_MOVED = "its pool is at another site now"
_PARTING = "nothing is left to do, and the hub ends"
#: Seconds that pilots have to leave before the hub ends, and between two looks at them.
_PART_S = 60.0
_GLANCE_S = 0.5


class Files:
    """The files of pools, read anew when they change; one with a mistake stays as it was."""

    def __init__(self, root: Path) -> None:
        self._root = root
        #: By pool, those with mistakes too, when its file was changed and how long it is.
        self.marks: dict[str, tuple[int, int]] = {}
        #: What was said of those with mistakes; the mistake may be in the file of the site.
        self._wrong: dict[str, str] = {}
        self.pools: dict[str, Pool] = {}
        self.sites: dict[str, SiteSettings] = {}

    def read(self, agents: Collection[str] = ()) -> bool:
        """Follow what has changed; say whether something has. Sites with `agents` have no file."""
        before = dict(self.marks), dict(self.pools)
        names = files.names(self._root)
        for gone in self.marks.keys() - set(names):
            del self.marks[gone]
            self.pools.pop(gone, None)
            self._wrong.pop(gone, None)
        for name in names:
            try:
                facts = files.file_of(self._root, name).stat()
            except FileNotFoundError:
                continue
            mark = (facts.st_mtime_ns, facts.st_size)
            if self.marks.get(name) != mark or name in self._wrong:
                self.marks[name] = mark
                self._load(name, agents)
        return (self.marks, self.pools) != before

    def _load(self, name: str, agents: Collection[str]) -> None:
        try:
            pool = files.read(self._root, name)
            self.sites[pool.site] = pool_site.read(self._root, pool.site, agents)
        except errors.PilotageError as error:
            if self._wrong.get(name) != str(error):
                _log.error("pool %s stays as it was: %s", name, error)
            self._wrong[name] = str(error)
        else:
            self._wrong.pop(name, None)
            self.pools[name] = pool


class Pools:
    """All pools of the project."""

    def __init__(self, root: Path, queue: Queue, roster: Roster) -> None:
        """Get ready for the project in `root`; nothing happens before `run`."""
        self._files = Files(root)
        self._queue = queue
        self._roster = roster
        #: Since when pilots have no job, as far as this process has seen.
        self._idle: dict[int, float] = {}
        #: By pilot, the core-seconds that were measured when its pool was looked at, and by then.
        self._marks: dict[int, tuple[float, float]] = {}
        self._measured: dict[int, tuple[float, float]] = {}
        #: Pilots that were told in the last turn to drain or to go on.
        self._told: list[int] = []
        #: When it is time to look, if no file changes before.
        self._next = 0.0
        #: Pilots that pools could have, and what jobs may ask of them.
        self._offers: list[tuple[PilotRequest, dict[str, Any]]] = []
        #: Whether all are to go, and how many have not.
        self._parting = False
        self._left = 0

    def hope(self, kind: Cluster) -> bool:
        """Say whether a pool would have a pilot for a kind of jobs, without anybody's help."""
        return any(holds(wish, kind) and suits(kind, wish, like) for wish, like in self._offers)

    async def part(self) -> None:
        """Let all pilots go, those of a minimum too, since nobody will look after them."""
        self._parting = True
        with anyio.move_on_after(_PART_S):
            await self._look()
            while self._left:
                await anyio.sleep(_GLANCE_S)
                await self._look()

    async def run(self) -> None:
        """Steer until cancelled; whatever goes wrong here, jobs and pilots go on."""
        await loop.steer(self._try)

    async def _try(self) -> float:
        try:
            return await self.tick()
        except Exception:  # noqa: BLE001 - a pool that cannot be steered must not end the hub
            _log.exception("pools are left as they are, and looked at again in a while")
            return loop.LONGEST

    async def tick(self) -> float:
        """Look at all pools if it is time or if a file has changed; return seconds to wait."""
        agents = await self._agents()
        changed = await anyio.to_thread.run_sync(self._files.read, agents)
        if changed or anyio.current_time() >= self._next:
            await self._look()
            pause = min((one.seconds for one in self._files.pools.values()), default=_IDLE_S)
            self._next = anyio.current_time() + pause
        return min(_IDLE_S, self._next - anyio.current_time())

    async def _agents(self) -> Collection[str]:
        """Return the sites with an agent."""
        found: list[Collection[str]] = []

        def read(_ledger: Ledger, db: Db, now: float) -> None:
            found.append(view.pilot_sites(db, now).keys())

        await self._queue.do(read)
        return found[-1]

    async def _look(self) -> None:
        """Look at all pools once."""
        await self._queue.do(self._turn)
        self._queue.hope = self.hope
        crash.point("pool.written")
        self._marks = self._measured
        for number in self._told:
            # A question that came in the same turn would wait for its answer.
            self._queue.nudge(number)

    def _turn(self, ledger: Ledger, db: Db, now: float) -> None:
        """See, decide and act, in one transaction; it may be run again if that fails."""
        self._told, self._offers = [], []
        rows = pool_model.rows(db)
        if not self._files.pools and not rows:
            return
        pools = known(rows, self._files.pools)
        pilots = self._roster.pilots
        found = pool_drones.drones(ledger, db, pools, pilots, self._idle, now)
        if self._parting:
            self._part(ledger, db, found, now)
            return
        due = _due(pools, rows, now)
        agents = view.pilot_sites(db, now)
        sites = {
            name: pool_site.of(site, agents.get(name)) for name, site in self._files.sites.items()
        }
        seen = observe.look(ledger, db, due, sites, rows, found, self._marks, now)
        self._measured = {
            one.number: one.measured if name in due else self._marks.get(one.number, (0.0, 0.0))
            for name, mine in found.items()
            for one in mine
        }
        crash.point("pool.seen")
        steps, needs = decide.decide(due, rows, seen, pool_model.needs(db), now)
        crash.point("pool.decided")
        for name, step in steps.items():
            self._act(ledger, db, name, pools[name], step, found[name], now)
            self._note(db, rows.get(name, Row(name)), seen[name], step, now)
        for name, pool in pools.items():
            told = steps.get(name) or rows.get(name, Row(name))
            if not told.asked and (found[name] or not told.reason):
                look = seen.get(name) or rows.get(name, Row(name)).seen
                wish = given(pool, sites[pool.site], look)
                self._offers.append(
                    (wish, attributes(name, pool, sites[pool.site], sees=sees(db, name)))
                )
        if due:
            db.run("pool_need_clear")
            body = [[name, msgspec.json.encode(need).decode()] for name, need in needs.items()]
            db.run("pool_need_put", rows=text.dump(body))
            db.run("pool_sample_purge", before=now - 7 * _DAY_S)
        self._let_go(ledger, db, found.get(pool_drones.STRAY, []), _MOVED, now)
        for name in rows.keys() - self._files.marks.keys():
            self._dissolve(ledger, db, name, found.get(name, []), now)
        crash.point("pool.acted")

    # -- acts ------------------------------------------------------------------------------------

    def _act(
        self, ledger: Ledger, db: Db, name: str, pool: Pool, step: Step, mine: list[Drone],
        now: float,
    ) -> None:  # fmt: skip
        body = msgspec.json.encode(pool.pilot.wish()).decode()
        for _ in range(step.order):
            db.value("pool_want", site=pool.site, pool=name, wish=body, now=now)
        self._call_off(db, mine, step.cancel)
        self._recall(db, mine, step.recall)
        self._drain(ledger, db, mine, step.release + step.drain, step.words, now)
        if step.order or step.cancel or step.release or step.drain or step.recall:
            _log.info(
                "pool %s: %d more, %d called off, %d drained, %d called back: %s", name,
                step.order, step.cancel, step.release + step.drain, step.recall, step.words,
            )  # fmt: skip

    def _call_off(self, db: Db, mine: list[Drone], count: int) -> None:
        """Call off pilots that wait: those that were not submitted first, then the newest."""
        waiting = [one for one in mine if one.waits and not one.off]
        waiting.sort(key=lambda one: (one.state is State.SUBMITTED, -one.number))
        if chosen := [one.number for one in waiting[:count]]:
            db.run("pool_call_off", ids=text.dump(chosen))

    def _drain(
        self, ledger: Ledger, db: Db, mine: list[Drone], count: int, words: str, now: float
    ) -> None:
        """Drain pilots: the longest idle first, then the emptiest; what they run goes on."""
        ready = [one for one in mine if one.ready]
        ready.sort(key=lambda one: (-1.0 if one.idle is None else one.idle, one.free), reverse=True)
        for one in ready[:count]:
            pilot = self._roster.pilots.get(one.number)
            if pilot is not None:
                self._roster.shed(ledger, db, pilot, words, now)
                self._told.append(one.number)

    def _recall(self, db: Db, mine: list[Drone], count: int) -> None:
        """Call pilots back that drain, the fullest first; who leaves by now is not waited for."""
        back = sorted((one for one in mine if one.callable), key=lambda one: one.free)
        for one in back[:count]:
            pilot = self._roster.pilots.get(one.number)
            if pilot is not None and self._roster.recall(db, pilot):
                self._told.append(one.number)

    def _let_go(
        self, ledger: Ledger, db: Db, mine: list[Drone], words: str, now: float
    ) -> None:  # fmt: skip
        """Let pilots go: those that wait are called off, the others finish what they run."""
        self._call_off(db, mine, len(mine))
        self._drain(ledger, db, mine, len(mine), words, now)

    def _part(
        self, ledger: Ledger, db: Db, found: Mapping[str, list[Drone]], now: float
    ) -> None:  # fmt: skip
        for mine in found.values():
            self._let_go(ledger, db, mine, _PARTING, now)
        self._left = sum(map(len, found.values()))

    def _dissolve(self, ledger: Ledger, db: Db, name: str, mine: list[Drone], now: float) -> None:
        """Let the pilots of a pool go that has no file any more."""
        self._let_go(ledger, db, mine, _GONE, now)
        if not mine:
            db.run("pool_drop", name=name)
            db.run("alarm_drop", name=_alarm(name))

    # -- what people see -------------------------------------------------------------------------

    def _note(self, db: Db, row: Row, seen: Seen, step: Step, now: float) -> None:
        name, reading = row.name, seen.reading
        db.run(
            "pool_put", name=name, demand=step.demand, state=text.dump(step.state),
            care=msgspec.json.encode(step.care).decode(),
            died=now if seen.sight.failed else row.died, looked=now,
            seen=msgspec.json.encode(msgspec.structs.replace(seen, meter=step.meter)).decode(),
            words=step.words, asked=step.asked, reason=step.reason,
        )  # fmt: skip
        db.run(
            "pool_sample_put", now=now, pool=name, supply=reading.supply, demand=step.demand,
            utilisation=reading.utilisation, allocation=reading.allocation,
            queued=reading.queued + reading.booting, waiting=seen.waiting,
        )  # fmt: skip
        if step.reason and step.reason != BY_PERSON:
            db.run("alarm_put", name=_alarm(name), words=step.reason, now=now)
        else:
            db.run("alarm_drop", name=_alarm(name))


def _alarm(name: str) -> str:
    return f"pool {name}"


def known(rows: Mapping[str, Row], pools: Mapping[str, Pool]) -> dict[str, Pool]:
    """Return pools as they are to be: as their files say, but for what a person has set."""
    return {
        name: rows[name].changed.apply(pool) if name in rows else pool
        for name, pool in pools.items()
    }


def _due(pools: Mapping[str, Pool], rows: Mapping[str, Row], now: float) -> dict[str, Pool]:
    """Choose the pools whose time has come; those under our law are decided for together."""
    found = {}
    for name, pool in pools.items():
        last = rows[name].looked if name in rows else 0.0
        if not last <= now < last + pool.seconds - loop.SHORTEST:
            found[name] = pool
    if any(isinstance(one.control, Aimd) for one in found.values()):
        found |= {name: one for name, one in pools.items() if isinstance(one.control, Aimd)}
    return found
