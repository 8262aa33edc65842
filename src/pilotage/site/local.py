"""The local site: claims queued jobs, runs them on this machine, records how they ended."""

from __future__ import annotations

import logging
import random
from asyncio import wrap_future
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec

from pilotage import crash, errors, text
from pilotage.clock import Clock
from pilotage.job import model, moves, records, retry
from pilotage.match import fit
from pilotage.match.model import Offer
from pilotage.payload import run
from pilotage.payload.model import Ending, Started, Why
from pilotage.site import launch, unchanged
from pilotage.store import Db, Writer

_T = TypeVar("_T")
_log = logging.getLogger("pilotage.site")
_GLANCE_S = 0.2


class Tenant(msgspec.Struct):
    """A job that runs here."""

    job: int
    attempt: int
    spec: model.JobSpec
    outputs: dict[str, str]
    limit_key: str
    rule: str
    dir: str
    #: Lock file of a starter of an earlier process; empty if it is ours.
    adopted: str = ""
    stopping: bool = False


class Listener:
    """Who wants to know of starts and ends; the hub overrides what it needs."""

    def started(self, claim: moves.Claim, binding: model.Binding, outputs: list[str]) -> None:
        """Hear that a job is about to start."""

    def ended(self, rule: str, job: int) -> None:
        """Hear that a job ended, after this is on disk."""


class LocalSite:
    """Runs jobs on this machine, in as many places as it has cores."""

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
        self._tenants: dict[str, Tenant] = {}
        self._specs: dict[int, model.JobSpec] = {}
        self._wake = anyio.Event()
        self._starter: run.Starter

    @property
    def busy(self) -> bool:
        """Whether anything runs here."""
        return bool(self._tenants)

    def poke(self) -> None:
        """Look at the queue again; from the event loop's thread only."""
        self._wake.set()

    async def run(self, *, linger: bool = False) -> None:
        """Run jobs until cancelled; `linger` says whether payloads then go on without us."""
        async with run.Starter.open(self._state, linger=linger) as starter:
            self._starter = starter
            await self._recover()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._collect)
                tasks.start_soon(self._watch_adopted)
                await self._dispatch()

    async def _do(self, step: Callable[[Db], _T]) -> _T:
        return await wrap_future(self._writer.submit(step))

    # -- start -----------------------------------------------------------------------------------

    async def _dispatch(self) -> None:
        while True:
            self._wake = anyio.Event()
            await self._stop_asked()
            while claims := await self._claim():
                await self._start(claims)
            due = await self._do(lambda db: db.value("job_next_due", now=self._clock.now()))
            patience = 60.0 if due is None else max(0.01, due - self._clock.now())
            with anyio.move_on_after(patience):
                await self._wake.wait()

    async def _claim(self) -> list[moves.Claim]:
        if self._offer.free_cpus <= 0:
            return []
        crash.point("job.before_claim")
        claims = await self._do(self._choose)
        if claims:
            crash.point("job.claimed")
        return claims

    def _choose(self, db: Db) -> list[moves.Claim]:
        """Pick what fits now, the most urgent first, and claim it."""
        now = self._clock.now()
        offer, chosen = self._offer, []
        running = self._by_limit()
        blocked = [key for key, count in running.items() if count >= _most(key)]
        for job, attempt, limit_key, spec, binding, rule, depth in db.run(
            "job_queue", now=now, blocked=text.dump(blocked)
        ):
            needs = self._spec(db, spec).resources
            if not fit.fits(needs, offer):
                continue
            if limit_key:
                if running.get(limit_key, 0) >= _most(limit_key):
                    continue
                running[limit_key] = running.get(limit_key, 0) + 1
            offer = fit.carve(needs, offer)
            chosen.append(moves.Claim(job, attempt + 1, spec, binding, rule, depth, limit_key))
            if offer.free_cpus <= 0:
                break
        folder = str(self._state / "jobs")
        return moves.claim(db, chosen, starter=str(self._starter.lock), folder=folder, now=now)

    def _spec(self, db: Db, number: int) -> model.JobSpec:
        if number not in self._specs:
            self._specs[number] = records.read_spec(db.value("spec_body", id=number))
        return self._specs[number]

    def _by_limit(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for tenant in self._tenants.values():
            if tenant.limit_key:
                counts[tenant.limit_key] = counts.get(tenant.limit_key, 0) + 1
        return counts

    async def _start(self, claims: list[moves.Claim]) -> None:
        launches, refused = [], []
        declared: dict[int, list[str]] = {}
        for claim in claims:
            spec = self._specs[claim.spec]
            self._offer = fit.carve(spec.resources, self._offer)
            binding = records.read_binding(claim.binding)
            folder = moves.attempt_dir(str(self._state / "jobs"), claim.job, claim.attempt)
            tenant = Tenant(
                claim.job, claim.attempt, spec, {}, claim.limit_key, claim.rule, folder
            )
            key = f"{claim.job}.{claim.attempt}"
            self._tenants[key] = tenant
            try:
                prepared = self._prepare(claim, spec, binding, folder)
            except _Refusal as refusal:
                refused.append((key, refusal.end))
                continue
            tenant.outputs = prepared.outputs
            self._listener.started(claim, binding, list(prepared.outputs.values()))
            launches.append(prepared.launch)
            declared[claim.job] = [text.store_path(path) for path in prepared.outputs.values()]
        await self._declare({job: paths for job, paths in declared.items() if paths})
        await self._starter.start(launches)
        crash.point("job.sent")
        if refused:
            await self._finish(refused)

    def _prepare(
        self, claim: moves.Claim, spec: model.JobSpec, binding: model.Binding, folder: str
    ) -> launch.Prepared:
        if objection := unchanged.objection(binding, spec.on_change):
            raise _Refusal(retry.End(ok=False, message=objection, call_off=objection))
        try:
            return launch.prepare(
                self._place, spec, binding, job=claim.job, attempt=claim.attempt, folder=folder
            )
        except (errors.PilotageError, OSError) as error:
            raise _Refusal(retry.End(ok=False, message=f"cannot start: {error}")) from error

    async def _declare(self, outputs: dict[int, list[str]]) -> None:
        """Write down which files the jobs that start now will write, before they can."""

        def step(db: Db) -> None:
            for job, paths in outputs.items():
                db.run("output_put", job=job, paths=text.dump(paths))

        if outputs:
            await self._do(step)

    async def _stop_asked(self) -> None:
        for job, attempt, asked in await self._do(lambda db: db.rows("job_asked")):
            tenant = self._tenants.get(f"{job}.{attempt}")
            if tenant is None or tenant.stopping:
                continue
            tenant.stopping = True
            if tenant.adopted:
                await anyio.to_thread.run_sync(run.end_orphans, [f"{job}.{attempt}"])
            else:
                words = "cancelled by a person" if asked == "cancel" else "held by a person"
                await self._starter.stop(f"{job}.{attempt}", words)

    # -- end -------------------------------------------------------------------------------------

    async def _collect(self) -> None:
        async for reports in self._starter:
            endings = [report for report in reports if isinstance(report, Ending)]
            if endings:
                crash.point("result.received")
                await self._finish([(one.key, self._end(one)) for one in endings])
                await self._starter.acknowledge([one.key for one in endings])
            started = [one for one in reports if isinstance(one, Started)]
            self._note_pids([one for one in started if one.key in self._tenants])

    def _note_pids(self, started: list[Started]) -> None:
        def step(db: Db) -> None:
            for one in started:
                job, _, attempt = one.key.partition(".")
                db.run("attempt_pid", job=int(job), number=int(attempt), pid=one.pid)

        if started:
            self._writer.submit(step)

    def _end(self, ending: Ending) -> retry.End:
        """Judge an ending: the exit code by what the job calls success, the outputs by looking."""
        tenant = self._tenants.get(ending.key)
        ok, missing = ending.ok, ()
        if tenant is not None and ending.reason is Why.exited:
            ok = ending.exit in tenant.spec.ok_codes
            missing = launch.missing(tenant.outputs) if ok else ()
        usage = ending.usage
        crash.point("result.checked")
        return retry.End(
            ok=ok, message=ending.message, lost=ending.reason is Why.lost, missing=missing,
            exit=ending.exit, signal=ending.signal,
            cpu=usage and usage.cpu_user + usage.cpu_system, wall=usage and usage.wall,
            max_rss=usage and usage.max_rss, read_bytes=usage and usage.read_bytes,
            written_bytes=usage and usage.written_bytes,
        )  # fmt: skip

    async def _finish(self, ends: list[tuple[str, retry.End]]) -> None:
        now = self._clock.now()

        def step(db: Db) -> None:
            for key, end in ends:
                job, _, attempt = key.partition(".")
                moves.finish(db, int(job), int(attempt), end, now=now, dice=self._dice)
            crash.point("result.before_commit")

        await self._do(step)
        crash.point("result.after_commit")
        for key, _ in ends:
            tenant = self._tenants.pop(key, None)
            if tenant is not None:
                self._offer = fit.carve(tenant.spec.resources, self._offer, sign=1)
                self._listener.ended(tenant.rule, tenant.job)
        self.poke()

    # -- after a restart -------------------------------------------------------------------------

    async def _recover(self) -> None:
        """Find what ran when an earlier process died: adopt it, hear its evidence, or count it lost."""
        for row in await self._do(lambda db: db.rows("job_running")):
            job, attempt, folder, lock, limit_key, spec, binding, _, _, rule, _ = row
            definition = await self._do(lambda db, number=spec: self._spec(db, number))
            folder = text.load_path(folder)
            tenant = Tenant(job, attempt, definition, {}, limit_key, rule, folder, adopted=lock)
            prepared = self._outputs(tenant, records.read_binding(binding))
            tenant.outputs = prepared
            self._tenants[f"{job}.{attempt}"] = tenant
            self._offer = fit.carve(definition.resources, self._offer)
        await self._look_at_adopted()

    def _outputs(self, tenant: Tenant, binding: model.Binding) -> dict[str, str]:
        try:
            prepared = launch.prepare(
                self._place, tenant.spec, binding,
                job=tenant.job, attempt=tenant.attempt, folder=tenant.dir,
            )  # fmt: skip
        except (errors.PilotageError, OSError):
            return {}
        return prepared.outputs

    async def _watch_adopted(self) -> None:
        while any(tenant.adopted for tenant in self._tenants.values()):
            await anyio.sleep(_GLANCE_S)
            await self._look_at_adopted()

    async def _look_at_adopted(self) -> None:
        adopted = {key: one for key, one in self._tenants.items() if one.adopted}
        # Whether the starter lives must be known before its evidence is looked for: it writes first.
        dead = {lock for lock in {one.adopted for one in adopted.values()} if not run.alive(Path(lock))}
        ends: list[tuple[str, retry.End]] = []
        lost = []
        for key, tenant in adopted.items():
            if (ending := run.evidence(Path(tenant.dir))) is not None:
                ends.append((key, self._end(ending)))
            elif tenant.adopted in dead:
                lost.append(key)
        if lost:
            await anyio.to_thread.run_sync(run.end_orphans, lost)
            _log.warning("%d attempts were lost when an earlier process died", len(lost))
            why = "the process that held it died without evidence of its end"
            ends += [(key, retry.End(ok=False, message=why, lost=True)) for key in lost]
        if ends:
            await self._finish(ends)


class _Refusal(Exception):  # noqa: N818 - not an error of ours: it carries an end
    """A claimed job that must not start."""

    def __init__(self, end: retry.End) -> None:
        super().__init__(end.message)
        self.end = end


def _most(limit_key: str) -> int:
    """Read how many may run from a rendered limit key, `key:most`."""
    return int(limit_key.rpartition(":")[2])
