"""Staging of data between tasks, and recovery of outputs that were lost.

    prepare:  each input, pinned by its digest ──▶ the message, or the folder of a job of this hub
    check:    the manifest as the site reported it? ──▶ files and result in the store ──▶ done
              changed or gone ──▶ sent again, once ──▶ still so ──▶ the task is run again

Every report is verified, and every part may be repeated after a crash.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import anyio
import msgspec

from pilotage.base import errors, units
from pilotage.bus.model import Input, Output
from pilotage.data.transfer.url import PORT
from pilotage.edge import folders, handoff, reach
from pilotage.edge.handoff import HUB, AttemptDir, InputPiece
from pilotage.edge.inspect import Inspector
from pilotage.edge.message import HubIdentity
from pilotage.edge.publish import NOWHERE, Publisher
from pilotage.edge.reach import Reach
from pilotage.flow import records, task_data
from pilotage.flow.model import AttemptEnd
from pilotage.flow.moves import MOST_RETURNED_BYTES
from pilotage.flow.orders import PlacedOrder, PreparedData, Unfit
from pilotage.flow.records import AttemptRow
from pilotage.flow.rerun import stale
from pilotage.flow.task_data import ExpectedOutputs
from pilotage.project.folder import ProjectFolder
from pilotage.project.settings import FLOWS
from pilotage.store import Db, Writer

#: Sends the outputs of a job of this hub again, and replaces those there; returns the trouble.
Send: TypeAlias = Callable[[AttemptRow], Awaitable[str]]


class TaskRef(msgspec.Struct, frozen=True):
    """The position of a task."""

    flow: int
    step: str
    item: int
    id: int


class DataRecovery:
    """Recovers lost outputs: has them sent again, or reruns their task."""

    def __init__(
        self, project: ProjectFolder, writer: Writer, reader: Db, inspector: Inspector, send: Send
    ) -> None:
        """Take the store, the inspector of data, and the sender of outputs of jobs of this hub."""
        flows = project.settings.flows
        self._writer, self._reader = writer, reader
        self._reply, self._now = flows.reply, project.clock.now
        self._silence = units.seconds(flows.silence)
        self._inspector, self._send = inspector, send

    def waits(self, attempt: AttemptRow) -> bool:
        """Return whether outputs of an attempt were requested again and may still come."""
        return task_data.waits(self._reader, attempt, self._now(), self._silence)

    async def hope(self, attempt: AttemptRow, why: str) -> bool:
        """Request the outputs of an attempt again; return whether they may still come."""
        if attempt.way != "edge":
            return False
        address = HubIdentity(records.hub_name(self._reader), self._reply)
        return await self._writer.run(
            functools.partial(
                task_data.ask, attempt=attempt, reason=why, address=address, now=self._now(),
                patience=self._silence,
            )
        )  # fmt: skip

    async def sources(self, task: TaskRef, number: int, consumer: int = 0) -> str | None:
        """Check and recover all inputs of a task from others; return the trouble, if there are any.

        Lost ones are sent again, or their task is rerun: this task waits for that.
        """
        db = self._reader
        sources = [
            one
            for take in task_data.takes_of(db, task.id, number)
            for one in task_data.of_item(
                db, task.flow, task.step, task.item, take, records.sources(db, task.flow, take)
            )
        ]
        found = [(one, records.attempt(db, one.task, one.number)) for one in sources]
        made = [(one, attempt) for one, attempt in found if attempt is not None]
        for one, attempt in made:
            # Before any byte is read: this is polled until the outputs have come.
            if self.waits(attempt):
                return f"what `{one.step}` has left is sent again"
        wrong = ""
        for one, attempt in made:
            if trouble := await self.mend(attempt, consumer):
                wrong = f"what `{one.step}` has left is not there: {trouble}"
        return wrong if made else None

    async def mend(self, made: AttemptRow, consumer: int = 0) -> str:
        """Verify and recover the outputs of an attempt; return the trouble, if any."""
        if self.waits(made):
            return "it is sent again"
        found = await self._inspector.look(made.place, made.digest, deep=True)
        if found.trouble and made.way == "here" and not await self._send(made):
            found = await self._inspector.look(made.place, made.digest, deep=True)
        if found.trouble and not await self.hope(made, found.trouble):
            rerun = functools.partial(
                stale, task=made.task, now=self._now(), reason=found.trouble,
                consumer=consumer,
            )  # fmt: skip
            await self._writer.run(rerun)
        return found.trouble


_NOTHING = PreparedData()
_DONE = AttemptEnd(state="done")
#: The most inputs in a message; more are bundled in one folder.
_MOST_INPUTS = 900
#: The most attempts whose data is handled at once.
_AT_ONCE = 16
#: Codes of a site for an input that is lost or changed.
_DOUBTFUL = frozenset({"conflict", "not_found"})


class TaskStaging:
    """Prepares the data of tasks before dispatch, and checks it when they report done."""

    def __init__(self, project: ProjectFolder, writer: Writer, reader: Db) -> None:
        """Take the store."""
        flows = project.settings.flows
        self._root, self._work = project.root, project.state / FLOWS / "work"
        self._writer, self._reader = writer, reader
        self._stores = reach.stores(flows, project.state, reader)
        self._reach = Reach(flows, project.root, project.state)
        scratch = project.state / FLOWS / "scratch"
        self._publisher = Publisher(self._reach, self._stores, project.root, scratch)
        self._inspector = Inspector(self._reach.inside, self._stores, scratch)
        #: Recovers lost outputs.
        self.heal = DataRecovery(project, writer, reader, self._inspector, self._resend)
        self._lanes = anyio.Semaphore(_AT_ONCE)
        #: The last attempt that could not be prepared although all inputs were whole.
        self._puzzled: set[str] = set()

    # -- before ----------------------------------------------------------------------------------

    async def prepare(self, order: PlacedOrder) -> PreparedData:
        """Prepare the data of an attempt; see `orders.TaskData`."""
        leaves = task_data.leaves(order.definition)
        if not (order.inputs or leaves.outputs):
            return _NOTHING
        try:
            async with self._lanes:
                return await self._ready(order, leaves)
        except errors.NeedsCredential:
            raise
        except (errors.NotFound, errors.Denied, errors.UsageError) as error:
            raise Unfit(f"its data cannot be had: {error}") from error

    async def _ready(self, order: PlacedOrder, leaves: ExpectedOutputs) -> PreparedData:
        pieces = task_data.pieces(self._reader, order)
        place = self._place(order) if leaves.outputs else AttemptDir("", "")
        if order.way == "here":
            return await self._here(order, pieces, place)
        inputs = await self._inputs(order, pieces)
        outputs = tuple(Output(path=one, url=place.write, below=one) for one in leaves.outputs)
        return PreparedData(inputs=inputs, outputs=outputs, place=place.read)

    def _place(self, order: PlacedOrder) -> AttemptDir:
        readers = task_data.readers(self._reader, order.flow, order.step)
        site = order.site if order.way == "edge" else HUB
        store = handoff.base(self._stores, site, readers)
        if store is None:
            raise Unfit(NOWHERE)
        return handoff.place(store, self._below(order.flow, order.step, order.item, order.number))

    def _below(self, flow: int, step: str, item: int, number: int) -> str:
        return handoff.below(mark(self._reader, flow), step, item, number)

    async def _inputs(self, order: PlacedOrder, pieces: Sequence[InputPiece]) -> tuple[Input, ...]:
        """Return the inputs that a site fetches, with the addresses that are valid there."""
        if any(one.url.startswith(PORT) and not one.own for one in pieces):
            message = "a workflow cannot name what lies at the hub's port"
            raise errors.Denied(message, hint="name the step that wrote it")
        many = len(pieces) > _MOST_INPUTS
        if not self._stores.reaches(order.site) and (many or any(map(_at_port, pieces))):
            raise Unfit(NOWHERE)
        flow = mark(self._reader, order.flow)
        found = [
            one if "://" in one.url else await self._publisher.own(flow, one) for one in pieces
        ]
        if many:
            below = self._below(order.flow, order.step, order.item, order.number)
            found = [await self._publisher.bundle(f"{below.rstrip('/')}~in/", found)]
        return tuple(
            Input(
                url=handoff.seen(self._stores, one.url, order.site),
                path=one.path,
                sha256=one.sha256,
            )
            for one in found
        )

    async def _here(
        self, order: PlacedOrder, pieces: Sequence[InputPiece], place: AttemptDir
    ) -> PreparedData:
        folder = self._folder(order.flow, order.step, order.item, order.number)
        named = [
            InputPiece(handoff.seen(self._stores, one.url, HUB), one.path, one.sha256, one.own)
            for one in pieces
        ]
        try:
            read = await folders.bring(self._reach, self._root, named, folder)
        except (errors.Conflict, errors.NotFound) as error:
            task = TaskRef(order.flow, order.step, order.item, order.task)
            why = await self.heal.sources(task, order.number)
            if not why and order.key in self._puzzled:
                raise Unfit(f"its inputs cannot be put together: {error.message}") from error
            self._puzzled = {order.key}
            raise errors.Unavailable(why or error.message) from error
        return PreparedData(folder=str(folder), place=place.read, read=read)

    def _folder(self, flow: int, step: str, item: int, number: int) -> Path:
        return self._work / self._below(flow, step, item, number).rstrip("/")

    # -- after -----------------------------------------------------------------------------------

    async def check(self, task: int, number: int) -> AttemptEnd | None:
        """Check the outputs of an attempt, or its unreadable inputs; see `orders.TaskData`."""
        attempt = records.attempt(self._reader, task, number)
        if attempt is None or attempt.ended is not None:
            return None
        if attempt.state == "failed":
            async with self._lanes:
                return await self._doubt(attempt)
        if not attempt.place:
            return _DONE
        if self.heal.waits(attempt):
            return None
        leaves = task_data.leaves_of(self._reader, task, number)
        try:
            async with self._lanes:
                if attempt.way == "here" and (why := await self._send(attempt, leaves)):
                    return _failed(why, "output")
                return await self._look(attempt, leaves)
        except errors.PilotageError as error:
            # The reason is shown with the flow.
            words = f"its outputs cannot be checked: {error}"
            await self._writer.run(functools.partial(task_data.say, task=task, reason=words))
            raise

    async def _look(self, attempt: AttemptRow, leaves: ExpectedOutputs) -> AttemptEnd | None:
        told = "" if attempt.way == "here" else attempt.digest
        found = await self._inspector.look(attempt.place, told)
        result: object = None
        if not found.trouble and leaves.result:
            try:
                result = task_data.parse(
                    await self._inspector.small(found, leaves.result, MOST_RETURNED_BYTES)
                )
            except errors.NotFound:
                return _failed(f"it has left no result `{leaves.result}`", "result")
            except (errors.BadMessage, errors.TooLarge) as error:
                return _failed(f"the result `{leaves.result}`: {error.message}", "result")
            except errors.Damaged as error:
                found.trouble = error.message
        if found.trouble:
            if await self.heal.hope(attempt, found.trouble):
                return None
            reason = f"its outputs are missing: {found.trouble}"
            return AttemptEnd(state="lost", reason=reason, kind="staging", code="damaged")
        read = None
        if attempt.way == "here":
            read = folders.read(
                self._folder(attempt.flow, *self._task(attempt.task), attempt.number)
            )
        keep = functools.partial(
            task_data.keep,
            attempt=attempt,
            kept=task_data.FoundOutputs(found.digest, found.files, found.bytes, read),
            result=result,
        )
        await self._writer.run(keep)
        return _DONE

    async def _send(
        self, attempt: AttemptRow, leaves: ExpectedOutputs, *, resend: bool = False
    ) -> str:
        """Publish the outputs of a job of this hub; return the trouble."""
        folder = self._folder(attempt.flow, *self._task(attempt.task), attempt.number)
        where = handoff.seen(self._stores, attempt.place, HUB)
        try:
            source = await folders.gather(folder, leaves.outputs)
        except (errors.NotFound, errors.Denied, errors.Conflict) as error:
            return error.message
        await folders.send(self._reach.inside, folder, source, where, resend=resend)
        return ""

    async def _resend(self, attempt: AttemptRow) -> str:
        leaves = task_data.leaves_of(self._reader, attempt.task, attempt.number)
        return await self._send(attempt, leaves, resend=True)

    def _task(self, task: int) -> tuple[str, int]:
        found = records.task(self._reader, task)
        return found.step, found.item

    # -- lost inputs ------------------------------------------------------------------------------

    async def _doubt(self, attempt: AttemptRow) -> AttemptEnd | None:
        """Check the inputs that an attempt could not read: they may be lost."""
        end = AttemptEnd(
            state="failed", reason=attempt.reason, kind=attempt.kind, code=attempt.code
        )
        if attempt.started is not None or attempt.code not in _DOUBTFUL:
            return end
        task = TaskRef(attempt.flow, *self._task(attempt.task), attempt.task)
        why = await self.heal.sources(task, attempt.number, consumer=attempt.task)
        if why is None:
            return end
        if why:
            return None
        # All is whole: it changed only while it was read, or was recovered.
        return AttemptEnd(state="lost", reason=attempt.reason, kind="staging", code=attempt.code)


def _at_port(piece: InputPiece) -> bool:
    """Return whether something is at the hub's port, or would be put there."""
    return piece.url.startswith(PORT) or "://" not in piece.url


def mark(db: Db, flow: int) -> str:
    """Name the folder of a flow."""
    row = records.flow(db, flow)
    return handoff.mark(row.id, row.key, row.created)


def _failed(reason: str, code: str) -> AttemptEnd:
    return AttemptEnd(state="failed", reason=reason, kind="application", code=code)
