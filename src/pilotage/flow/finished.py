"""Finished flows: their outputs are delivered, and their data is removed after a while.

That a flow's data is to be removed is in the store before the first of it is, and until the last of
it is. A flow that is resumed meanwhile is left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from pilotage.base import errors, text, units
from pilotage.edge import handoff, reach
from pilotage.edge.handoff import HUB, DataStores
from pilotage.edge.publish import ASIDE
from pilotage.edge.reach import Reach
from pilotage.flow import flow_outputs, moves, records
from pilotage.flow.staging import DataRecovery
from pilotage.job.moves import declare
from pilotage.project.folder import ProjectFolder
from pilotage.project.settings import FLOWS
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.flow")
#: Seconds between looks for data that is old enough, and the least between looks for outputs to
#: deliver.
_LOOK_S = 60.0
_SOON_S = 1.0
_GLANCE_S = 0.05
#: Seconds until a failed delivery is retried.
_AGAIN_S = 5.0
#: The most flows handled at once.
_MOST = 100


class FinishedFlows:
    """Delivers outputs of finished flows, and removes old data."""

    def __init__(
        self, project: ProjectFolder, writer: Writer, reader: Db, heal: DataRecovery,
        told: Callable[[], None], writes: Callable[[int, int, list[str]], None],
    ) -> None:  # fmt: skip
        """Take the store, and the recovery of lost data.

        `told` is called when flows ended, `writes` before results of jobs that are flows are here.
        """
        self._tell, self._writes = told, writes
        flows = project.settings.flows
        self._root, self._state = project.root, project.state / FLOWS
        self._writer, self._reader, self._now = writer, reader, project.clock.now
        self._keep = units.seconds(flows.keep)
        self._stores: DataStores = reach.stores(flows, project.state, reader)
        self._reach = Reach(flows, project.root, project.state)
        self._heal = heal
        self._told: set[str] = set()
        self._new = asyncio.Event()

    async def run(self) -> None:
        """Deliver and remove until cancelled."""
        loop = asyncio.get_running_loop()
        with self._writer.telling(functools.partial(loop.call_soon_threadsafe, self._new.set)):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._deliver_all)
                while True:
                    with self._lasting():
                        await self.clear()
                    await anyio.sleep(min(_LOOK_S, max(_SOON_S, self._keep / 10)))

    # -- results ---------------------------------------------------------------------------------

    async def _deliver_all(self) -> None:
        while True:
            self._new.clear()
            waits = 1
            with self._lasting():
                waits = await self.deliver()
            with anyio.move_on_after(_AGAIN_S if waits else None):
                await self._new.wait()
            await anyio.sleep(_GLANCE_S)

    async def deliver(self) -> int:
        """Deliver the outputs of all flows whose steps are done; return how many must wait."""
        waits = 0
        for (flow,) in self._reader.rows("flow_hand_going", most=_MOST):
            trouble = await self._one(flow)
            if trouble is None:
                waits += 1
                continue
            await self._writer.run(
                functools.partial(moves.delivered, flow=flow, now=self._now(), trouble=trouble)
            )
            self._tell()
        return waits

    async def _one(self, flow: int) -> str | None:
        """Deliver the outputs of one flow; return its permanent error, nothing if it must wait."""
        try:
            await self._declare(flow)
            await flow_outputs.deliver(
                self._reach, self._stores, self._reader, self._root, self._state / "scratch", flow
            )
        except (errors.Unavailable, errors.TimedOut, errors.NeedsCredential) as error:
            self._complain(f"the results of flow {flow} wait: {error}")
            return None
        except errors.PilotageError as error:
            if isinstance(error, errors.Conflict | errors.NotFound) and await self._mend(flow):
                return None
            return f"its results cannot be sent: {error}"
        return ""

    async def _declare(self, flow: int) -> None:
        """Declare the files that the job of a flow writes, so that their events have a cause."""
        job, depth = self._reader.row("flow_cause", flow=flow) or (0, 0)
        if not job:
            return
        homes = flow_outputs.homes(self._reader, flow, str(self._root))
        paths = [one for one in homes if one.startswith("/")]
        await self._writer.run(
            lambda db: declare(db, {job: [text.store_path(one) for one in paths]})
        )
        self._writes(job, depth, paths)

    async def _mend(self, flow: int) -> bool:
        """Have damaged outputs sent again; return whether any may still come."""
        hope = False
        for one in flow_outputs.makers(self._reader, flow):
            made = records.attempt(self._reader, one.task, one.number)
            if made is not None and await self._heal.mend(made):
                hope |= self._heal.waits(made)
        return hope

    # -- data that is old ------------------------------------------------------------------------

    async def clear(self) -> int:
        """Remove the data of flows that ended long enough ago; return how many."""
        now = self._now()
        before = now - self._keep
        for (flow,) in self._reader.rows("flow_hand_old", before=before, most=_MOST):
            await self._writer.run(functools.partial(_begin, flow=flow, before=before, now=now))
        count = 0
        for (flow,) in self._reader.rows("flow_hand_clearing"):
            try:
                await self._clear(flow)
            except errors.PilotageError as error:
                self._complain(f"data of flow {flow} cannot be removed: {error}")
                if error.retryable:
                    continue
            await self._writer.run(functools.partial(_over, flow=flow))
            count += 1
        return count

    async def _clear(self, flow: int) -> None:
        for number, key, created in self._reader.rows("flow_hand_within", flow=flow):
            if records.flow(self._reader, flow).cleared is None:
                # It was rerun meanwhile.
                return
            name = handoff.mark(number, key, created)
            places = {place for (place,) in self._reader.rows("flow_hand_places", flow=number)}
            for top in self._tops(places, name):
                await self._reach.inside.clear(f"{top}{name}/", f"{top}{ASIDE}{name}/")
            await run_sync(_remove, self._state / "work" / name)

    def _tops(self, places: Iterable[str], name: str) -> set[str]:
        """Return the parents of the folders of a flow, as this hub names them."""
        # What was published for its steps is at the transfer server, for any reader.
        found = {f"{self._stores.data.rstrip('/')}/"} if self._stores.data else set()
        for place in places:
            top, cut, _ = place.partition(f"{name}/")
            if cut:
                found.add(top)
        return {handoff.seen(self._stores, one, HUB) for one in found}

    @contextlib.contextmanager
    def _lasting(self) -> Iterator[None]:
        """Continue after a temporary failure: a store that is locked, a disk that is full."""
        try:
            yield
        except (errors.PilotageError, OSError) as error:
            self._complain(f"data of flows: {error}")

    def _complain(self, words: str) -> None:
        if words not in self._told:
            self._told = {words}
            _log.warning("%s", words)


def _begin(db: Db, flow: int, before: float, now: float) -> None:
    if db.value("flow_hand_clear", flow=flow, before=before, now=now) is not None:
        db.run("flow_hand_begin_clear", flow=flow)


def _over(db: Db, flow: int) -> None:
    db.run("flow_hand_cleared", flow=flow)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
