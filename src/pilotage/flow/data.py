"""Data is handed from one step to the next, and what was lost on the way is had again.

    prepare:  what each input is, pinned by its digest ──▶ the message, or the folder of our own job
    check:    the manifest as the site told it? ──▶ files and result in the store ──▶ done
              changed or gone ──▶ sent again, once ──▶ still so ──▶ the task is run again

Nothing is believed because somebody said so, and all of it may be done again by who was killed.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import anyio

from pilotage.base import errors
from pilotage.bus.model import Input, Output
from pilotage.data.transfer.url import PORT
from pilotage.edge import folders, handoff, reach
from pilotage.edge.handoff import HUB, HandoffFolder, InputPiece
from pilotage.edge.inspect import Inspector
from pilotage.edge.publish import NOWHERE, Publisher
from pilotage.edge.reach import Reach
from pilotage.flow import reads, records, results
from pilotage.flow.handoff import Order, Prepared, Unfit
from pilotage.flow.model import End
from pilotage.flow.records import AttemptRow
from pilotage.flow.recover import Healer, Task
from pilotage.flow.results import Leaves
from pilotage.project.folder import ProjectFolder
from pilotage.project.settings import FLOWS
from pilotage.store import Db, Writer

_NOTHING = Prepared()
_DONE = End(state="done")
#: Inputs that a message can name; more are put together in one folder.
_MOST_INPUTS = 900
#: Attempts whose data is seen to at once.
_AT_ONCE = 16
#: What a site says of an input that is not what it was.
_DOUBTFUL = frozenset({"conflict", "not_found"})


class Hand:
    """Sees to the data of tasks: before they are sent, and once they say that they are done."""

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
        #: Has data again that is lost.
        self.heal = Healer(project, writer, reader, self._inspector, self._send_anew)
        self._lanes = anyio.Semaphore(_AT_ONCE)
        #: The attempt that could not be made ready last although all was there.
        self._puzzled: set[str] = set()

    # -- before ----------------------------------------------------------------------------------

    async def prepare(self, order: Order) -> Prepared:
        """Get the data of an attempt ready; see `model.Data`."""
        leaves = results.leaves(order.definition)
        if not (order.inputs or leaves.outputs):
            return _NOTHING
        try:
            async with self._lanes:
                return await self._ready(order, leaves)
        except errors.NeedsCredential:
            raise
        except (errors.NotFound, errors.Denied, errors.UsageError) as error:
            raise Unfit(f"its data cannot be had: {error}") from error

    async def _ready(self, order: Order, leaves: Leaves) -> Prepared:
        pieces = reads.pieces(self._reader, order)
        place = self._place(order) if leaves.outputs else HandoffFolder("", "")
        if order.way == "here":
            return await self._here(order, pieces, place)
        inputs = await self._inputs(order, pieces)
        outputs = tuple(Output(path=one, url=place.write, below=one) for one in leaves.outputs)
        return Prepared(inputs=inputs, outputs=outputs, place=place.read)

    def _place(self, order: Order) -> HandoffFolder:
        readers = reads.readers(self._reader, order.flow, order.step)
        site = order.site if order.way == "edge" else HUB
        store = handoff.base(self._stores, site, readers)
        if store is None:
            raise Unfit(NOWHERE)
        return handoff.place(store, self._below(order.flow, order.step, order.item, order.number))

    def _below(self, flow: int, step: str, item: int, number: int) -> str:
        return handoff.below(mark(self._reader, flow), step, item, number)

    async def _inputs(self, order: Order, pieces: Sequence[InputPiece]) -> tuple[Input, ...]:
        """Name what a site fetches by itself, as it is named there."""
        if any(one.url.startswith(PORT) and not one.own for one in pieces):
            message = "a workflow cannot name what lies at the hub's port"
            raise errors.Denied(message, hint="name the step that has left it")
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
        self, order: Order, pieces: Sequence[InputPiece], place: HandoffFolder
    ) -> Prepared:
        folder = self._folder(order.flow, order.step, order.item, order.number)
        named = [
            InputPiece(handoff.seen(self._stores, one.url, HUB), one.path, one.sha256, one.own)
            for one in pieces
        ]
        try:
            read = await folders.bring(self._reach, self._root, named, folder)
        except (errors.Conflict, errors.NotFound) as error:
            task = Task(order.flow, order.step, order.item, order.task)
            why = await self.heal.sources(task, order.number)
            if not why and order.key in self._puzzled:
                raise Unfit(f"its inputs cannot be put together: {error.message}") from error
            self._puzzled = {order.key}
            raise errors.Unavailable(why or error.message) from error
        return Prepared(folder=str(folder), place=place.read, read=read)

    def _folder(self, flow: int, step: str, item: int, number: int) -> Path:
        return self._work / self._below(flow, step, item, number).rstrip("/")

    # -- after -----------------------------------------------------------------------------------

    async def check(self, task: int, number: int) -> End | None:
        """Look at what an attempt has left, or could not read; see `model.Data`."""
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
        leaves = results.leaves_of(self._reader, task, number)
        try:
            async with self._lanes:
                if attempt.way == "here" and (why := await self._send(attempt, leaves)):
                    return _failed(why, "output")
                return await self._look(attempt, leaves)
        except errors.PilotageError as error:
            # Who looks at the flow is to see why it does not go on.
            words = f"what it left cannot be looked at: {error}"
            await self._writer.run(functools.partial(results.say, task=task, reason=words))
            raise

    async def _look(self, attempt: AttemptRow, leaves: Leaves) -> End | None:
        told = "" if attempt.way == "here" else attempt.digest
        found = await self._inspector.look(attempt.place, told)
        result: object = None
        if not found.trouble and leaves.result:
            try:
                result = results.parse(await self._inspector.small(found, leaves.result))
            except errors.NotFound:
                return _failed(f"it has left no result `{leaves.result}`", "result")
            except (errors.BadMessage, errors.TooLarge) as error:
                return _failed(f"the result `{leaves.result}`: {error.message}", "result")
            except errors.Damaged as error:
                found.trouble = error.message
        if found.trouble:
            if await self.heal.hope(attempt, found.trouble):
                return None
            reason = f"what it has left is not there: {found.trouble}"
            return End(state="lost", reason=reason, kind="staging", code="damaged")
        read = None
        if attempt.way == "here":
            read = folders.read(
                self._folder(attempt.flow, *self._task(attempt.task), attempt.number)
            )
        keep = functools.partial(
            results.keep, attempt=attempt, kept=found.kept(read), result=result
        )
        await self._writer.run(keep)
        return _DONE

    async def _send(self, attempt: AttemptRow, leaves: Leaves, *, anew: bool = False) -> str:
        """Put what a job of ours has left where others find it; say what of it cannot be."""
        folder = self._folder(attempt.flow, *self._task(attempt.task), attempt.number)
        where = handoff.seen(self._stores, attempt.place, HUB)
        try:
            source = await folders.gather(folder, leaves.outputs)
        except (errors.NotFound, errors.Denied, errors.Conflict) as error:
            return error.message
        await folders.send(self._reach.inside, folder, source, where, anew=anew)
        return ""

    async def _send_anew(self, attempt: AttemptRow) -> str:
        leaves = results.leaves_of(self._reader, attempt.task, attempt.number)
        return await self._send(attempt, leaves, anew=True)

    def _task(self, task: int) -> tuple[str, int]:
        found = records.task(self._reader, task)
        return found.step, found.item

    # -- what is not there any more --------------------------------------------------------------

    async def _doubt(self, attempt: AttemptRow) -> End | None:
        """Look at what an attempt could not read: it may be gone where it was left."""
        end = End(state="failed", reason=attempt.reason, kind=attempt.kind, code=attempt.code)
        if attempt.started is not None or attempt.code not in _DOUBTFUL:
            return end
        task = Task(attempt.flow, *self._task(attempt.task), attempt.task)
        why = await self.heal.sources(task, attempt.number, consumer=attempt.task)
        if why is None:
            return end
        if why:
            return None
        # All is there: it was changed only while it was read, or is there again.
        return End(state="lost", reason=attempt.reason, kind="staging", code=attempt.code)


def _at_port(piece: InputPiece) -> bool:
    """Say whether something is at the hub's port, or would be put there."""
    return piece.url.startswith(PORT) or "://" not in piece.url


def mark(db: Db, flow: int) -> str:
    """Name the folder of a flow."""
    row = records.flow(db, flow)
    return handoff.mark(row.id, row.key, row.created)


def _failed(reason: str, code: str) -> End:
    return End(state="failed", reason=reason, kind="application", code=code)
