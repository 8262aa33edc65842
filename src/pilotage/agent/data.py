"""Data of jobs that came as messages: fetched by URL, prepared, and sent by URL.

    inputs ──▶ config ──▶ parser ──▶ preprocess ──▶ kept on disk ──▶ batch system
                                                    postprocess ──▶ outputs, the manifest last

Completed steps are recorded on disk and not repeated after a restart. Each step is recorded before
it begins, so that a failure is reported with its step.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio.to_thread import run_sync

from pilotage.agent import pilots, records, shortage, side_program, staging
from pilotage.agent.app.files import Trust
from pilotage.agent.app.model import Application
from pilotage.agent.input_cache import InputCache
from pilotage.agent.model import Blame
from pilotage.agent.registry import Registry
from pilotage.agent.settings import Settings
from pilotage.agent.staging import PreparedJob, TransferJob, TransferSlots
from pilotage.base import crash, errors, text, units
from pilotage.batch.connection import SiteConnection
from pilotage.batch.job import BatchJob, ItemFolder
from pilotage.batch.results import Streams
from pilotage.bus.fields import Step
from pilotage.bus.model import Job, Left
from pilotage.data.transfer.kind.hub import HubAddress
from pilotage.data.transfer.retrying import Told
from pilotage.edge import folders
from pilotage.edge.order import PILOT
from pilotage.job import moves
from pilotage.job import records as jobs
from pilotage.job.model import Binding, State
from pilotage.store import Db, Writer

#: Folder of jobs at the site, and of their records in the state folder.
FOLDER = "edge"
_CLOSE_S = 10.0
#: Returns how pilots reach a hub, from the settings of its carrier and its address.
Link = Callable[[Settings, str], Awaitable[str]]


async def _direct(settings: Settings, url: str) -> str:
    return pilots.link(settings, url)


class JobData:
    """Stages the data of all jobs of an agent."""

    def __init__(
        self, remote: SiteConnection, writer: Writer, state: Path, registry: Registry,
        settings: Callable[[], Settings], now: Callable[[], float],
        home: Callable[[str], HubAddress | None] = lambda _: None, link: Link = _direct,
    ) -> None:  # fmt: skip
        """Keep what must outlive the agent below `state`; settings may change.

        `home` returns the hub that the jobs of a user come from, if the agent dials it, and `link`
        how pilots of that user reach a hub.
        """
        self._remote = remote
        self._writer = writer
        self._state = state
        self._registry = registry
        self._settings = settings
        self._now = now
        self._trust = Trust()
        self._home, self._link = home, link
        self._slots = TransferSlots(lambda: settings().limits.transfers)
        self._contents = InputCache(lambda: units.size(settings().limits.cache))
        self._streams = Streams(remote, state)
        self._busy: set[asyncio.Task[Any]] = set()

    @property
    def slots(self) -> TransferSlots:
        """The transfer slots of this site."""
        return self._slots

    @property
    def apart(self) -> bool:
        """One job's data may take a minute and another's a day."""
        return True

    def brings(self, one: BatchJob) -> bool:
        """Every job has a folder of its own, which must be there."""
        del one
        return True

    async def logs(self, some: Sequence[tuple[BatchJob, ItemFolder]]) -> None:
        """Fetch the output of jobs so far for commands that show it."""
        await self._streams.bring(some)

    async def close(self) -> None:
        """Stop all transfers and programs."""
        for task in self._busy:
            task.cancel()
        if self._busy:
            await asyncio.wait(self._busy, timeout=_CLOSE_S)

    # -- before the job --------------------------------------------------------------------------

    async def bring(self, one: BatchJob) -> None:
        """Prepare the folder of a job, and set in `one` what runs there."""
        with self._working():
            job, user = await self._writer.run(lambda db: _asked(db, one))
            root = (await self._remote.ready()).root
            if job.application == PILOT:
                async with self._blaming(one):
                    await self._bring_pilot(one, job, user, root)
                await self._writer.run(lambda db: self._ready(db, one, 0))
                return
            folder = f"{root}/{FOLDER}/{one.key}"
            async with self._blaming(one):
                app, kept = await run_sync(self._look, one, job, user, folder)
                if kept is None:
                    kept = await self._prepare(one, app, job, user, folder)
                    # It may have taken long.
                    await run_sync(self._trust.require, app)
                filled = staging.fill(app, job, kept, one.claim.job)
            one.spec, one.folder = staging.spec_of(one.spec, filled, folder), folder
            one.binding = Binding(data=dict(filled.calls))
            await self._writer.run(lambda db: self._ready(db, one, kept.read))

    async def _bring_pilot(self, one: BatchJob, job: Job, user: str, root: str) -> None:
        """Prepare the start of a pilot; all that it needs is in its order, wherever its site is."""
        settings = self._settings()
        settings = settings.by(settings.carrier_of(user))
        app = await run_sync(self._registry.find, PILOT)
        staging.check(app, job, user)
        pilots.check(app, job, settings, one.claim.attempt)
        one.files = await run_sync(pilots.files, job, settings)
        link = await self._link(settings, pilots.hub(job, settings))
        program = f"{root}/bin/{self._remote.hello.version}.pyz"
        filled = pilots.command(app, job, settings, program, link)
        one.spec, one.folder = staging.spec_of(one.spec, filled, root), root

    def _look(
        self, one: BatchJob, job: Job, user: str, folder: str
    ) -> tuple[Application, PreparedJob | None]:
        """Check that a job may run, and load its prepared state."""
        app = self._registry.find(job.application)
        staging.check(app, job, user)
        self._trust.require(app)
        if staging.plain(app, job):
            _make(self._spare(), folder)
            return app, PreparedJob()
        return app, _known(self._file(one), folder)

    async def _prepare(
        self, one: BatchJob, app: Application, job: Job, user: str, folder: str
    ) -> PreparedJob:
        """Fetch inputs, read the config, run the preprocess program, and record that."""
        await self._step(one, "stage_in")
        transfer = self._transfer(one, app, job, user, folder)
        beside = f"{folder}.in"
        await run_sync(_make, transfer.spare, folder, beside)
        read = await staging.fetch(transfer, beside, self._slots, self._contents)
        if job.config and app.takes == "parameters":
            await run_sync(staging.write_config, job, folder, beside)
        if app.takes != "parameters":
            await run_sync(staging.open_folders, job, folder)
        crash.point("stage.fetched")
        kept = await staging.read_config(app, job, folder)
        filled = staging.fill(app, job, kept, one.claim.job)
        if filled.preprocess:
            await self._step(one, "preprocess")
            await self._run(one, app, folder, "preprocess", filled.preprocess)
            crash.point("stage.preprocessed")
        after = bool(filled.postprocess)
        leaves = after or bool(job.outputs)
        kept = msgspec.structs.replace(kept, after=after, leaves=leaves, read=read)
        await run_sync(staging.write, self._file(one), kept)
        crash.point("stage.prepared")
        await run_sync(_remove, beside)
        return kept

    def _ready(self, db: Db, one: BatchJob, read: int) -> None:
        """Record that a job can be submitted; keep a later state."""
        if read:
            records.brought(db, one.claim.job, read)
        if db.value("edge_staging", job=one.claim.job):
            records.step(db, one.claim.job, "submit")
            moves.progress(db, [one.attempt], State.READY, "", self._now())

    async def shaped(self, one: BatchJob) -> None:
        """Fill in the application again, for the shape that a job has got."""
        with self._working():
            job, _ = await self._writer.run(lambda db: _asked(db, one))
            async with self._blaming(one):
                app = await run_sync(self._registry.find, job.application)
                kept = await run_sync(staging.read, self._file(one))
                if not staging.plain(app, job):
                    kept = self._required(one, kept)
                filled = staging.fill(app, job, kept or PreparedJob(), one.claim.job)
            one.spec = staging.spec_of(one.spec, filled, one.folder)
            one.binding = Binding(data=dict(filled.calls))

    # -- after the job ---------------------------------------------------------------------------

    async def leaves(self, one: BatchJob, found: dict[str, Any]) -> bool:
        """Return whether anything is still to be done after a job."""
        del found
        job, _ = await self._writer.run(lambda db: _asked(db, one))
        if job.application == PILOT:
            return False
        with shortage.waits():
            kept = await run_sync(staging.read, self._file(one))
        if kept is None and staging.bare(job):
            return False
        kept = self._required(one, kept)
        if not kept.leaves or kept.sent:
            return False
        step: Step = "postprocess" if _to_run(kept) else "stage_out"
        # The state changes next, and that is reported.
        await self._writer.run(lambda db: records.step(db, one.claim.job, step))
        return True

    async def home(self, one: BatchJob, room: ItemFolder, found: dict[str, Any]) -> None:
        """Run the postprocess program of a job, and send its outputs."""
        del found
        with self._working():
            job, user = await self._writer.run(lambda db: _asked(db, one))
            folder = f"{room.root}/{FOLDER}/{one.key}"
            async with self._blaming(one):
                kept = self._required(one, await run_sync(staging.read, self._file(one)))
                app = await run_sync(self._registry.find, job.application)
                if _to_run(kept):
                    await self._step(one, "postprocess")
                    argv = staging.fill(app, job, kept, one.claim.job).postprocess
                    if argv:
                        await self._run(one, app, folder, "postprocess", argv)
                    kept = await self._keep(one, kept, postprocessed=True)
                    crash.point("stage.postprocessed")
                if job.outputs:
                    transfer = self._transfer(one, app, job, user, folder)
                    kept = await self._send(one, transfer, kept)
                await self._keep(one, kept, sent=True)
            crash.point("stage.sent")

    async def _send(self, one: BatchJob, transfer: TransferJob, kept: PreparedJob) -> PreparedJob:
        await self._step(one, "stage_out")
        staging.check_outputs(transfer.app, transfer.job)
        again = kept.sending or await run_sync(self._sent_before, one)
        kept = await self._keep(one, kept, sending=True)
        beside = f"{transfer.folder}.out"
        try:
            left = await staging.send(transfer, beside, self._slots, again=again)
        except errors.Conflict:
            # Files of another job are there, and a retry would not change that.
            await self._keep(one, kept, sending=again)
            raise
        await self._writer.run(lambda db: records.left(db, one.claim.job, left))
        await run_sync(_remove, beside)
        return kept

    def _sent_before(self, one: BatchJob) -> bool:
        """Return whether an earlier process may have sent some of the outputs."""
        job, attempt = one.attempt
        files = [self._state / FOLDER / f"{job}.{number}.json" for number in range(1, attempt)]
        return any(kept.sending for kept in map(staging.read, files) if kept)

    async def leave(self, one: BatchJob) -> None:
        """Remove temporary files of an attempt; its folder is kept for a while."""
        if one.spec.name == PILOT:
            return
        lock, root = self._file(one).with_suffix(".lock"), self._remote.hello.root
        folder = f"{root}/{FOLDER}/{one.key}"

        def remove() -> None:
            # An earlier process may have left a program running.
            side_program.sweep(lock)
            lock.unlink(missing_ok=True)
            for beside in (f"{folder}.in", f"{folder}.out") if root else ():
                _remove(beside)

        await run_sync(remove)

    # -- shared ----------------------------------------------------------------------------------

    def _file(self, one: BatchJob) -> Path:
        return self._state / FOLDER / f"{one.key}.json"

    def _required(self, one: BatchJob, kept: PreparedJob | None) -> PreparedJob:
        if kept is None:
            # Assuming that nothing is left to do would lose its results.
            raise errors.PilotageError(
                f"{self._file(one)} is gone: its remaining steps are unknown"
            )
        return kept

    async def _keep(self, one: BatchJob, kept: PreparedJob, **changes: bool) -> PreparedJob:
        kept = msgspec.structs.replace(kept, **changes)
        await run_sync(staging.write, self._file(one), kept)
        return kept

    def _transfer(
        self, one: BatchJob, app: Application, job: Job, user: str, folder: str
    ) -> TransferJob:
        return TransferJob(
            app=app, job=job, key=one.key, folder=folder, user=user,
            keys=self._settings().credentials, spare=self._spare(), told=self._tell(one),
            home=self._home(user),
        )  # fmt: skip

    def _spare(self) -> int:
        return units.size(self._settings().limits.free)

    async def _run(
        self, one: BatchJob, app: Application, folder: str, what: str, argv: Sequence[str]
    ) -> None:
        """Run a program of the application in the folder of a job."""
        await run_sync(self._trust.require, app)
        await run_sync(folders.real_folder, folder)
        attempt = moves.attempt_dir(str(self._state / "jobs"), *one.attempt)
        await side_program.run(
            argv, folder=folder, env=app.env, lock=self._file(one).with_suffix(".lock"),
            output=Path(attempt) / f"{what}.out",
        )  # fmt: skip

    def _tell(self, one: BatchJob) -> Told:
        rows = text.dump([one.attempt])

        def told(error: errors.PilotageError) -> None:
            words = f"its data waits: {error.message}"
            self._writer.submit(lambda db: db.run("job_say", rows=rows, reason=words))

        return told

    async def _step(self, one: BatchJob, step: Step) -> None:
        """Record the current step, and report it."""
        await self._writer.run(lambda db: records.step(db, one.claim.job, step, self._now()))

    @contextlib.asynccontextmanager
    async def _blaming(self, one: BatchJob) -> AsyncIterator[None]:
        """Record the cause of a final failure."""
        try:
            with shortage.waits():
                yield
        except errors.Unavailable:
            raise
        except errors.PilotageError as error:
            kind, code = blame(error)
            await self._writer.run(lambda db: records.blame(db, one.claim.job, kind, code))
            raise

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        """Register a task that `close` waits for."""
        task = asyncio.current_task()
        if task is not None:
            self._busy.add(task)
        try:
            yield
        finally:
            if task is not None:
                self._busy.discard(task)


def blame(error: errors.PilotageError) -> tuple[Blame, str]:
    """Return the class and code of a failure for status messages."""
    match error:
        case errors.NeedsCredential():
            return "credential", "credential"
        case errors.JobFailed():
            return "application", "exit"
        case errors.TimedOut():
            return "application", "timeout"
        case errors.UsageError():
            return "message", "config"
        case errors.Denied() | errors.ConfigError():
            return "policy", "policy"
        case errors.Conflict():
            return "staging", "conflict"
        case errors.NotFound():
            return "staging", "not_found"
        case _:
            return "staging", "staging"


def _asked(db: Db, one: BatchJob) -> tuple[Job, str]:
    """Read the order of a job, in its granted shape, and its sender."""
    job = staging.sized(records.message(db, one.claim.job), one.fit)
    return job, records.owner_of(db, one.claim.job) or ""


def _to_run(kept: PreparedJob) -> bool:
    return kept.after and not kept.postprocessed


def _known(file: Path, folder: str) -> PreparedJob | None:
    """Read the record of an attempt; ignore it if the folder is gone."""
    return staging.read(file) if os.path.isdir(folder) else None


def _make(spare: int, *wanted: str) -> None:
    """Create private folders of a job, if enough space stays free."""
    above = os.path.dirname(wanted[0])
    os.makedirs(above, mode=0o700, exist_ok=True)
    staging.check_room(above, spare)
    for one in wanted:
        os.makedirs(one, mode=0o700, exist_ok=True)
        folders.real_folder(one)


def _remove(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)


#: Minimal seconds between two checks, however much is written.
_LOOK_S = 0.2


class Resends:
    """Sends outputs of completed jobs again on request."""

    def __init__(
        self, remote: SiteConnection, writer: Writer, open_reader: Callable[[], Db],
        registry: Registry, settings: Callable[[], Settings], slots: TransferSlots,
        now: Callable[[], float], home: Callable[[str], HubAddress | None] = lambda _: None,
    ) -> None:  # fmt: skip
        """Share the slots of all transfers; nothing happens before `run`."""
        self._remote = remote
        self._writer = writer
        self._open_reader = open_reader
        self._registry = registry
        self._settings = settings
        self._slots = slots
        self._now, self._home = now, home
        self._busy: set[int] = set()
        self._new = asyncio.Event()

    async def run(self) -> None:
        """Send requested outputs until cancelled."""
        db, loop = self._open_reader(), asyncio.get_running_loop()
        wake = functools.partial(loop.call_soon_threadsafe, self._new.set)
        with contextlib.closing(db), self._writer.telling(wake):
            async with anyio.create_task_group() as tasks:
                while True:
                    self._new.clear()
                    for job in records.asked_again(db):
                        if job not in self._busy:
                            self._busy.add(job)
                            tasks.start_soon(self._one, job)
                    await self._new.wait()
                    await anyio.sleep(_LOOK_S)

    async def _one(self, number: int) -> None:
        left: Sequence[Left] = ()
        why = ""
        try:
            left = await self._send(number)
        except errors.PilotageError as error:
            why = f"its outputs cannot be sent again: {error.message}"
        except OSError as error:
            why = f"its outputs cannot be sent again: {error.strerror}"
        note = functools.partial(
            records.sent_again, job=number, what=left, why=why, now=self._now()
        )
        await self._writer.run(note)
        self._busy.discard(number)

    async def _send(self, number: int) -> Sequence[Left]:
        job, attempt, state, user = await self._writer.run(
            functools.partial(_resend_asked, number=number)
        )
        if state is not State.DONE:
            raise errors.Conflict(f"it is {state} now")
        app = await run_sync(self._registry.find, job.application)
        staging.check_outputs(app, job)
        key = f"{number}.{attempt}"
        folder = f"{(await self._remote.ready()).root}/{FOLDER}/{key}"
        if not await run_sync(os.path.isdir, folder):
            raise errors.NotFound("its folder was removed")
        transfer = TransferJob(
            app=app, job=job, key=key, folder=folder, keys=self._settings().credentials,
            home=self._home(user),
        )  # fmt: skip
        beside = f"{folder}.out"
        try:
            return await staging.send(transfer, beside, self._slots, again=True, force=True)
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(functools.partial(shutil.rmtree, beside, ignore_errors=True))


def _resend_asked(db: Db, number: int) -> tuple[Job, int, State, str]:
    """Read the order of a job, its attempt, its state and its sender."""
    found = jobs.get(db, number)
    user = records.owner_of(db, number) or ""
    return records.message(db, number), found.attempt, found.state, user
