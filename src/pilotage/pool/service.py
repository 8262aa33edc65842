"""Control loop of all pools: observe, decide and act, one transaction a turn.

Decisions and the pilots that they order are stored in one transaction: after a crash, the next
process finds the pilots by the name of their pool and continues.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
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
from pilotage.match.queue import JobQueue
from pilotage.match.turn import TurnRecords
from pilotage.pilot.table import PilotTable
from pilotage.pool import decide, files, observe, state
from pilotage.pool import pilots as pool_pilots
from pilotage.pool import site as pool_site
from pilotage.pool.files import Aimd, Pool
from pilotage.pool.pilots import PoolPilot
from pilotage.pool.prospects import attributes, given, holds, sees, suits
from pilotage.pool.state import BY_PERSON, PoolObservation, PoolRow, PoolStep
from pilotage.store import Db

#: Longest and shortest interval between two ticks, in seconds.
LONGEST = 60.0
SHORTEST = 0.2


async def steer(tick: Callable[[], Awaitable[float]]) -> None:
    """Call `tick` until cancelled; it returns the seconds until it wants to be called again."""
    while True:
        wait = await tick()
        await anyio.sleep(min(LONGEST, max(SHORTEST, wait)))


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
    """The files of pools, reloaded on change; an invalid file keeps its last valid version."""

    def __init__(self, root: Path) -> None:
        self._root = root
        #: By pool, those with mistakes too, when its file was changed and how long it is.
        self.marks: dict[str, tuple[int, int]] = {}
        #: What was said of those with mistakes; the mistake may be in the file of the site.
        self._wrong: dict[str, str] = {}
        self.pools: dict[str, Pool] = {}
        self.sites: dict[str, SiteSettings] = {}

    def read(self, agents: Collection[str] = ()) -> bool:
        """Reload changed files; return whether any changed. Sites with `agents` have no file."""
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

    def __init__(self, root: Path, queue: JobQueue, roster: PilotTable) -> None:
        """Get ready for the project in `root`; nothing happens before `run`."""
        self._files = Files(root)
        self._queue = queue
        self._roster = roster
        #: Since when pilots have no job, as far as this process has seen.
        self._idle: dict[int, float] = {}
        #: By pilot, the core-seconds that were measured when its pool was looked at, and by then.
        self._marks: dict[int, tuple[float, float]] = {}
        self._measured: dict[int, tuple[float, float]] = {}
        #: Pilots that were drained or recalled in the last turn.
        self._told: list[int] = []
        #: When it is time to look, if no file changes before.
        self._next = 0.0
        #: Pilots that pools could have, and what jobs may ask of them.
        self._offers: list[tuple[PilotRequest, dict[str, Any]]] = []
        #: Whether the pools have been read at least once.
        self.looked = False
        #: Whether all pilots leave, and how many are still there.
        self._parting = False
        self._left = 0

    def hope(self, kind: Cluster) -> bool:
        """Return whether some pool could start a pilot for a kind of jobs by itself."""
        return any(holds(wish, kind) and suits(kind, wish, like) for wish, like in self._offers)

    async def part(self) -> None:
        """Drain all pilots, even below the minimum: no process will control them."""
        self._parting = True
        with anyio.move_on_after(_PART_S):
            await self._look()
            while self._left:
                await anyio.sleep(_GLANCE_S)
                await self._look()

    async def run(self) -> None:
        """Control pools until cancelled; an error here does not stop jobs or pilots."""
        await steer(self._try)

    async def _try(self) -> float:
        try:
            return await self.tick()
        except Exception:  # noqa: BLE001 - a pool that cannot be steered must not end the hub
            _log.exception("pools stay as they are until the next attempt")
            return LONGEST

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

        def read(_ledger: TurnRecords, db: Db, now: float) -> None:
            found.append(view.pilot_sites(db, now).keys())

        await self._queue.do(read)
        return found[-1]

    async def _look(self) -> None:
        """Look at all pools once."""
        await self._queue.do(self._turn)
        self.looked = True
        crash.point("pool.written")
        self._marks = self._measured
        for number in self._told:
            # A question that came in the same turn would wait for its answer.
            self._queue.nudge(number)

    def _turn(self, ledger: TurnRecords, db: Db, now: float) -> None:
        """Observe, decide and act in one transaction; it may run again if the transaction fails."""
        self._told, self._offers = [], []
        rows = state.rows(db)
        if not self._files.pools and not rows:
            return
        pools = known(rows, self._files.pools)
        pilots = self._roster.pilots
        found = pool_pilots.by_pool(ledger, db, pools, pilots, self._idle, now)
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
        steps, needs = decide.decide(due, rows, seen, state.needs(db), now)
        crash.point("pool.decided")
        for name, step in steps.items():
            self._act(ledger, db, name, pools[name], step, found[name], now)
            self._note(db, rows.get(name, PoolRow(name)), seen[name], step, now)
        for name, pool in pools.items():
            told = steps.get(name) or rows.get(name, PoolRow(name))
            if not told.asked and (found[name] or not told.reason):
                look = seen.get(name) or rows.get(name, PoolRow(name)).seen
                wish = given(pool, sites[pool.site], look)
                self._offers.append(
                    (wish, attributes(name, pool, sites[pool.site], sees=sees(db, name)))
                )
        if due:
            db.run("pool_need_clear")
            body = [[name, msgspec.json.encode(need).decode()] for name, need in needs.items()]
            db.run("pool_need_put", rows=text.dump(body))
            db.run("pool_sample_purge", before=now - 7 * _DAY_S)
        self._let_go(ledger, db, found.get(pool_pilots.STRAY, []), _MOVED, now)
        for name in rows.keys() - self._files.marks.keys():
            self._dissolve(ledger, db, name, found.get(name, []), now)
        crash.point("pool.acted")

    # -- acts ------------------------------------------------------------------------------------

    def _act(
        self, ledger: TurnRecords, db: Db, name: str, pool: Pool, step: PoolStep,
        mine: list[PoolPilot], now: float,
    ) -> None:  # fmt: skip
        body = msgspec.json.encode(pool.pilot).decode()
        for _ in range(step.order):
            db.value("pool_want", site=pool.site, pool=name, wish=body, now=now)
        self._call_off(db, mine, step.cancel)
        self._recall(db, mine, step.recall)
        self._drain(ledger, db, mine, step.release + step.drain, step.words, now)
        if step.order or step.cancel or step.release or step.drain or step.recall:
            _log.info(
                "pool %s: %d ordered, %d cancelled, %d drained, %d recalled: %s", name,
                step.order, step.cancel, step.release + step.drain, step.recall, step.words,
            )  # fmt: skip

    def _call_off(self, db: Db, mine: list[PoolPilot], count: int) -> None:
        """Cancel pilots that wait."""
        if chosen := [one.number for one in pool_pilots.to_cancel(mine)[:count]]:
            db.run("pool_call_off", ids=text.dump(chosen))

    def _drain(
        self, ledger: TurnRecords, db: Db, mine: list[PoolPilot], count: int, words: str, now: float
    ) -> None:
        """Drain pilots; what they run goes on."""
        for one in pool_pilots.to_drain(mine)[:count]:
            pilot = self._roster.pilots.get(one.number)
            if pilot is not None:
                self._roster.shed(ledger, db, pilot, words, now)
                self._told.append(one.number)

    def _recall(self, db: Db, mine: list[PoolPilot], count: int) -> None:
        """Recall draining pilots; one that has left already is skipped."""
        for one in pool_pilots.to_recall(mine)[:count]:
            pilot = self._roster.pilots.get(one.number)
            if pilot is not None and self._roster.recall(db, pilot):
                self._told.append(one.number)

    def _let_go(
        self, ledger: TurnRecords, db: Db, mine: list[PoolPilot], words: str, now: float
    ) -> None:  # fmt: skip
        """Cancel pilots that wait and drain the others."""
        self._call_off(db, mine, len(mine))
        self._drain(ledger, db, mine, len(mine), words, now)

    def _part(
        self, ledger: TurnRecords, db: Db, found: Mapping[str, list[PoolPilot]], now: float
    ) -> None:  # fmt: skip
        for mine in found.values():
            self._let_go(ledger, db, mine, _PARTING, now)
        self._left = sum(map(len, found.values()))

    def _dissolve(
        self, ledger: TurnRecords, db: Db, name: str, mine: list[PoolPilot], now: float
    ) -> None:
        """Remove the pilots of a pool whose file was deleted."""
        self._let_go(ledger, db, mine, _GONE, now)
        if not mine:
            db.run("pool_drop", name=name)
            db.run("alarm_drop", name=_alarm(name))

    # -- what people see -------------------------------------------------------------------------

    def _note(
        self, db: Db, row: PoolRow, seen: PoolObservation, step: PoolStep, now: float
    ) -> None:
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


def known(rows: Mapping[str, PoolRow], pools: Mapping[str, Pool]) -> dict[str, Pool]:
    """Return pools as configured by their files, with the overrides that a person has set."""
    return {
        name: rows[name].changed.apply(pool) if name in rows else pool
        for name, pool in pools.items()
    }


def _due(pools: Mapping[str, Pool], rows: Mapping[str, PoolRow], now: float) -> dict[str, Pool]:
    """Return the pools that are due; those with the AIMD policy are always decided together."""
    found = {}
    for name, pool in pools.items():
        last = rows[name].looked if name in rows else 0.0
        if not last <= now < last + pool.seconds - SHORTEST:
            found[name] = pool
    if any(isinstance(one.control, Aimd) for one in found.values()):
        found |= {name: one for name, one in pools.items() if isinstance(one.control, Aimd)}
    return found
