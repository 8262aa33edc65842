"""The local site: claims queued jobs, runs them on this machine, records how they ended."""

from __future__ import annotations

import asyncio
import collections
import functools
import logging
import random
import signal
from asyncio import wrap_future
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec

from pilotage import crash, errors, text
from pilotage.clock import Clock
from pilotage.job import model, moves, records, retry
from pilotage.match import fit
from pilotage.match.model import Offer
from pilotage.payload import run
from pilotage.payload.model import Ending, Launch, Started
from pilotage.payload.run import Starter
from pilotage.site import adopt, choose, launch, unchanged, verdict
from pilotage.site.choose import Tenant
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.site")
_T = TypeVar("_T")
_End = tuple[str, retry.End]
_GLANCE_S = 0.2
_MOMENT_S = 1.0
#: How long ends of jobs may wait to be written down together, and how many.
_BLINK_S = 0.02
_MANY = 16
#: How long payloads have to end by themselves when the runner stops.
_GRACE_S = 10.0
_LONGEST_WAIT_S = 60.0
#: So many starters in a row may die before they are ready.
_TRIES = 5
#: Weight of the newest job in the mean of how long jobs take.
_NEWEST = 0.2


class Listener:
    """Who wants to know of starts and ends."""

    def started(self, claim: moves.Claim, binding: model.Binding, outputs: list[str]) -> None:
        """Hear that a job is about to start."""

    def ended(self, rule: str, job: int) -> None:
        """Hear that a job ended, after this is on disk."""


class _Plan(msgspec.Struct, frozen=True):
    """What a turn came to, once it is on disk."""

    claims: list[moves.Claim]
    asked: list[tuple[Any, ...]]
    due: float | None


class LocalSite:
    """Runs jobs on this machine, as many at once as fit."""

    def __init__(
        self, writer: Writer, place: launch.Place, offer: Offer, state: Path, clock: Clock,
        dice: random.Random, listener: Listener,
    ) -> None:  # fmt: skip
        """Get ready; nothing happens before `run`."""
        self._writer = writer
        self._place = place
        self._offer = offer
        self._state = state
        self._clock = clock
        self._dice = dice
        self._listener = listener
        self._specs = choose.Specs()
        self._tenants: dict[str, Tenant] = {}
        #: Claimed already, to be started the moment there is room.
        self._shelf: collections.deque[tuple[Tenant, Launch]] = collections.deque()
        self._ends: list[_End] = []
        self._pids: dict[str, int] = {}
        self._mean_wall = 1.0
        self._alive = False
        self._wake = anyio.Event()
        self._starter: Starter

    def never(self) -> set[int]:
        """Name the definitions that do not fit here even when nothing runs."""
        return self._specs.never

    def poke(self) -> None:
        """Look at the queue again; from the event loop's thread only."""
        self._wake.set()

    async def run(self, *, linger: bool = False) -> None:
        """Run jobs until cancelled; `linger` says whether payloads then go on without us."""
        await self._adopt()
        failures = 0
        while True:
            try:
                async with self._open(linger=linger) as self._starter:
                    failures = 0
                    await self._work(linger=linger)
            except errors.Unavailable as error:
                # One that dies before it is ready has begun nothing; that all do is a fault.
                failures += 1
                if failures >= _TRIES or isinstance(error, errors.StoreUnavailable):
                    raise
            _log.error("the starter died; what it ran counts as lost, and another takes its place")
            await anyio.sleep(_GLANCE_S)

    async def _work(self, *, linger: bool) -> None:
        """Run jobs for as long as the starter lives; on the way out, put back what ran."""
        try:
            await self._serve()
        except anyio.get_cancelled_exc_class():
            if not linger:
                with anyio.CancelScope(shield=True):
                    await self._wind_down()
            raise

    def _open(self, *, linger: bool) -> AbstractAsyncContextManager[Starter]:
        return Starter.open(self._state, slots=self._offer.cpus, linger=linger)

    async def _serve(self) -> None:
        """Run jobs for as long as the starter lives."""
        self._alive = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._collect)
            tasks.start_soon(self._watch_adopted)
            tasks.start_soon(self._note_pids)
            if self._shelf:
                await self._hand_over()
            await self._start()
            while self._alive:
                await self._turn()
            tasks.cancel_scope.cancel()

    async def _do(self, step: Callable[[Db], _T]) -> _T:
        return await wrap_future(self._writer.submit(step))

    # -- one turn --------------------------------------------------------------------------------

    async def _turn(self) -> None:
        """Record what ended and claim what comes next, in one transaction; then start that."""
        await anyio.lowlevel.checkpoint()
        self._wake = anyio.Event()
        # What is claimed must get to the shelf, also when we stop: it is put back from there.
        with anyio.CancelScope(shield=True):
            plan = await self._act()
        if not (plan.claims or self._ends):
            wait = _LONGEST_WAIT_S if plan.due is None else plan.due - self._clock.now()
            with anyio.move_on_after(max(0.01, wait)):
                await self._wake.wait()

    async def _act(self) -> _Plan:
        ends, self._ends = self._ends, []
        crash.point("job.before_claim")
        leaving = [self._tenants.pop(key) for key, _ in ends]
        plan = await self._do(lambda db: self._plan(db, ends, leaving))
        if ends:
            crash.point("result.after_commit")
            for tenant in leaving:
                self._listener.ended(tenant.rule, tenant.job)
            self._starter.acknowledge(tenant.key for tenant in leaving if not tenant.adopted)
        if plan.claims:
            crash.point("job.claimed")
            await self._shelve(plan.claims)
        await self._stop(plan.asked)
        return plan

    def _plan(self, db: Db, ends: list[_End], leaving: list[Tenant]) -> _Plan:
        now = self._clock.now()
        self._finish(db, ends, leaving, now)
        ahead = len(self._shelf) + max(0, -self._offer.free_cpus)
        extra = choose.ahead(self._offer.cpus, self._mean_wall) - ahead
        chosen = choose.choose(
            db, self._specs, self._offer, self._tenants.values(), extra=extra, now=now
        )
        claims = moves.claim(
            db, chosen, starter=str(self._starter.lock), folder=self._folder, now=now
        )
        due = None if claims else db.value("job_next_due", now=now)
        return _Plan(claims, db.rows("job_asked"), due)

    def _finish(self, db: Db, ends: list[_End], leaving: list[Tenant], now: float) -> None:
        for (_, end), tenant in zip(ends, leaving, strict=True):
            moves.finish(db, tenant.job, tenant.attempt, tenant.spec, end, now=now, dice=self._dice)
        if ends:
            crash.point("result.before_commit")

    @property
    def _folder(self) -> str:
        return str(self._state / "jobs")

    # -- start -----------------------------------------------------------------------------------

    async def _shelve(self, claims: list[moves.Claim]) -> None:
        """Prepare claimed jobs, and start those for which there is room."""
        outputs: dict[int, list[str]] = {}
        ready = []
        for claim in claims:
            spec = self._specs.known[claim.spec]
            folder = moves.attempt_dir(self._folder, claim.job, claim.attempt)
            tenant = Tenant(claim.job, claim.attempt, spec, claim.limit_key, claim.rule, folder)
            self._tenants[tenant.key] = tenant
            binding = records.read_binding(claim.binding)
            prepared = self._prepare(tenant, binding)
            if isinstance(prepared, retry.End):
                self._ends.append((tenant.key, prepared))
                continue
            tenant.outputs = prepared.outputs
            ready.append((tenant, prepared.launch))
            declared = [*prepared.outputs.values(), *prepared.optional.values()]
            self._listener.started(claim, binding, declared)
            if declared:
                outputs[claim.job] = [text.store_path(path) for path in declared]
        if outputs:
            await self._do(lambda db: moves.declare(db, outputs))
        self._shelf.extend(ready)
        await self._start()

    def _prepare(self, tenant: Tenant, binding: model.Binding) -> launch.Prepared | retry.End:
        """Say which process to start, or why the job must not."""
        if objection := unchanged.objection(binding, tenant.spec.on_change):
            return retry.End(ok=False, message=objection, call_off=objection)
        try:
            return launch.prepare(
                self._place, tenant.spec, binding,
                job=tenant.job, attempt=tenant.attempt, folder=tenant.dir,
            )  # fmt: skip
        except (errors.PilotageError, OSError) as error:
            return retry.End(ok=False, message=f"cannot start: {error}")

    async def _start(self) -> None:
        """Send to the starter what there is room for, and plain jobs ahead of that."""
        taken = []
        alike = bool(self._shelf) and self._all_alike()
        while self._shelf:
            needs = self._shelf[0][0].spec.resources
            # The starter runs as many at once as there are cores, so that more may wait there as
            # long as each that it holds needs one core and nothing else.
            if not (fit.fits(needs, self._offer) or (alike and choose.plain(needs))):
                break
            alike = alike and choose.plain(needs)
            tenant, one = self._shelf.popleft()
            self._offer = fit.carve(needs, self._offer)
            taken.append((tenant, one))
        if not taken:
            return
        try:
            await self._starter.start([one for _, one in taken])
        except errors.Unavailable:
            # It has died, and its last reports come as they do: the next starter takes these.
            for tenant, one in reversed(taken):
                self._shelf.appendleft((tenant, one))
                self._offer = fit.carve(tenant.spec.resources, self._offer, sign=1)
        crash.point("job.sent")

    async def _hand_over(self) -> None:
        """Write down that what an earlier starter did not begin is this one's, before it begins."""
        shelved = [(tenant.job, tenant.attempt) for tenant, _ in self._shelf]
        lock = str(self._starter.lock)
        await self._do(lambda db: moves.hand_over(db, shelved, lock))

    def _all_alike(self) -> bool:
        """Say whether all that the starter holds is plain, and nothing else runs here."""
        shelved = {one.key for one, _ in self._shelf}
        return all(
            choose.plain(one.spec.resources) and not one.adopted
            for one in self._tenants.values()
            if one.key not in shelved
        )

    async def _stop(self, asked: Collection[tuple[Any, ...]]) -> None:
        """End the jobs that a person wants ended."""
        for job, attempt, what in asked:
            key = f"{job}.{attempt}"
            tenant = self._tenants.get(key)
            if tenant is None or tenant.stopping:
                continue
            tenant.stopping = anyio.current_time()
            words = "cancelled by a person" if what == "cancel" else "held by a person"
            shelved = next((one for one in self._shelf if one[0] is tenant), None)
            if shelved:
                self._shelf.remove(shelved)
                self._ends.append((key, retry.End(ok=False, message=words)))
            elif tenant.adopted:
                await _signal(tenant, signal.SIGTERM)
            else:
                await self._starter.stop(key, words)

    # -- end -------------------------------------------------------------------------------------

    async def _collect(self) -> None:
        async for reports in self._starter:
            for report in reports:
                if isinstance(report, Started):
                    self._pids[report.key] = report.pid
                else:
                    crash.point("result.received")
                    self._hear(report)
            # Room is filled at once from the shelf; the turn writes down what ended meanwhile.
            await self._start()
        self._alive = False
        self.poke()

    def _hear(self, ending: Ending) -> None:
        """Take in how a job ended, and give its room back."""
        tenant = self._tenants[ending.key]
        self._pids.pop(ending.key, None)
        self._offer = fit.carve(tenant.spec.resources, self._offer, sign=1)
        if ending.usage:
            self._mean_wall += _NEWEST * (ending.usage.wall - self._mean_wall)
        self._ends.append((ending.key, verdict.judge(tenant, ending)))
        if -self._offer.free_cpus < self._offer.cpus or len(self._ends) >= _MANY:
            self.poke()
        elif len(self._ends) == 1:
            # There is enough to do: what ends in the next moment is written down together.
            asyncio.get_running_loop().call_later(_BLINK_S, self.poke)

    async def _note_pids(self) -> None:
        """Write down the processes of jobs that run for longer than a moment."""
        while True:
            await anyio.sleep(_MOMENT_S)
            if self._pids:
                pids, self._pids = self._pids, {}
                await self._do(functools.partial(moves.note_pids, pids=pids))

    async def _wind_down(self) -> None:
        """Stop what runs, and put it back in the queue before we go."""
        why = "stopped together with its runner"
        for tenant, _ in self._shelf:
            self._ends.append((tenant.key, retry.End(ok=False, message=why, stopped=True)))
        over = {key for key, _ in self._ends}
        held = {key for key, one in self._tenants.items() if not one.adopted and key not in over}
        for key in held:
            await self._starter.stop(key, why, _GRACE_S)
        with anyio.move_on_after(_GRACE_S + _MOMENT_S):
            while held:
                for report in await anext(self._starter, []):
                    if isinstance(report, Ending):
                        self._hear(report)
                        held.discard(report.key)
        ends, leaving = self._ends, [self._tenants[key] for key, _ in self._ends]
        try:
            await self._do(lambda db: self._finish(db, ends, leaving, self._clock.now()))
        except errors.StoreUnavailable as error:
            _log.error("%s; the next start finds out what became of %d jobs", error, len(ends))

    # -- after a restart -------------------------------------------------------------------------

    async def _adopt(self) -> None:
        for tenant in await self._do(lambda db: adopt.tenants(db, self._specs, self._place)):
            self._tenants[tenant.key] = tenant
            self._offer = fit.carve(tenant.spec.resources, self._offer)
        await self._look_at_adopted()

    async def _watch_adopted(self) -> None:
        while any(tenant.adopted for tenant in self._tenants.values()):
            await anyio.sleep(_GLANCE_S)
            await self._look_at_adopted()
            for tenant in list(self._tenants.values()):
                if tenant.adopted and 0 < tenant.stopping < anyio.current_time() - _GRACE_S:
                    await _signal(tenant, signal.SIGKILL)

    async def _look_at_adopted(self) -> None:
        heard = {key for key, _ in self._ends}
        held = [one for one in self._tenants.values() if one.adopted and one.key not in heard]
        for ending in await anyio.to_thread.run_sync(adopt.endings, held):
            self._hear(ending)


async def _signal(tenant: Tenant, number: int) -> None:
    await anyio.to_thread.run_sync(run.signal_adopted, tenant.key, tenant.adopted, number)
