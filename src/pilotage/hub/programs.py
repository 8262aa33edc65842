"""Programs that submit jobs over a link and wait for their ends."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from asyncio import wrap_future
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from pilotage.base import errors
from pilotage.base.clock import Clock
from pilotage.job import moves, records
from pilotage.job.model import JobSpec
from pilotage.match import submission
from pilotage.match.queue import JobQueue
from pilotage.pilot import messages
from pilotage.pilot.model import PROTOCOL
from pilotage.project import tokens
from pilotage.store import Db, Writer

_MOST_WAIT_S = 60.0
_FAR = 2**53
#: Lines of the journal that are read at once, and bytes of ends in one message.
_PIECE = 20_000
_MESSAGE = 4 << 20
_AN_END = 100


class Client(msgspec.Struct, eq=False):
    """A program that has said who it is."""

    owner: str
    grant: tokens.Grant
    #: Looked up again with each question, since it may be revoked.
    token: str


class Clients:
    """Serves programs."""

    def __init__(
        self, writer: Writer, reader: Db, gate: tokens.TokenGate, queue: JobQueue, clock: Clock,
        judge: Callable[[Db, Iterable[JobSpec]], list[str]] = lambda *_: [], root: str = "",
    ) -> None:  # fmt: skip
        """Use `judge` to refuse jobs that their sites never take."""
        self._writer = writer
        self._reader = reader
        self._gate = gate
        self._queue = queue
        self._clock = clock
        self._judge = judge
        self._root = root
        self._news = asyncio.Event()
        queue.on_end.append(self._ring)

    def login(self, message: messages.Login) -> Client:
        """Find out who speaks."""
        if message.protocol != PROTOCOL:
            text_ = (
                f"this program speaks version {message.protocol} of the link, the hub {PROTOCOL}"
            )
            raise errors.UsageError(text_, hint="use the same version of Pilotage on both sides")
        grant = self._gate.check(message.token, tokens.TokenScope.READ)
        return Client(grant.owner, grant, message.token)

    async def do(
        self, client: Client, message: messages.Submit | messages.AwaitEnds | messages.Cancel
    ) -> dict[str, Any]:
        """Do what a program asks for, as long as its token counts."""
        client.grant = self._gate.check(client.token, tokens.TokenScope.READ)
        match message:
            case messages.Submit():
                return await self._submit(client, message)
            case messages.AwaitEnds():
                return await self._ends(client, message)
            case messages.Cancel():
                return await self._cancel(client, message)

    async def _submit(self, client: Client, message: messages.Submit) -> dict[str, Any]:
        if not client.grant.covers(tokens.TokenScope.USER):
            raise errors.Denied(
                "this token may only read", hint="use one of `pilotage token new user`"
            )
        for job in message.jobs:
            submission.check(job)
        notes = self._judge(self._reader, (job.spec for job in message.jobs))
        step = functools.partial(
            submission.add, items=message.jobs, owner=client.owner, now=self._clock.now(),
            root=self._root,
        )  # fmt: skip
        added = wrap_future(self._writer.submit(step))
        # The matchmaker looks in the same transaction, so that jobs are claimed as they come in.
        self._queue.poke()
        return {"ids": await added, **({"notes": notes} if notes else {})}

    async def _ends(self, client: Client, message: messages.AwaitEnds) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        until = loop.time() + min(message.wait, _MOST_WAIT_S)
        after = max(0, min(message.after, _FAR))
        while True:
            news = self._news
            last = int(self._reader.value("journal_last"))
            found, after = self._look(message.tag, after, last)
            if found or (after >= last and loop.time() >= until):
                return {"ends": found, "after": after}
            if after < last:
                # Others must be served between two pieces of a long journal.
                await asyncio.sleep(0)
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), until - loop.time())
            self._gate.check(client.token, tokens.TokenScope.READ)

    def _look(self, tag: str, after: int, last: int) -> tuple[list[dict[str, Any]], int]:
        """Read the ends in the next piece of the journal, as many as go into one message."""
        found: list[dict[str, Any]] = []
        size = 0
        last = min(last, after + _PIECE)
        for seq, job, state, reason, result in self._reader.run(
            "ends_of_tag", tag=tag, after=after, last=last
        ):
            one = {"seq": seq, "job": job, "state": state, "reason": reason}
            if result is not None:
                one["result"] = msgspec.Raw(result.encode())
            size += len(reason) + len(result or "") + _AN_END
            if found and size > _MESSAGE:
                return found, int(found[-1]["seq"])
            found.append(one)
        return found, max(after, last)

    async def _cancel(self, client: Client, message: messages.Cancel) -> dict[str, Any]:
        def step(db: Db) -> dict[int, str]:
            states = {}
            for number in message.jobs:
                if not 0 < number < _FAR:
                    raise errors.NotFound(f"there is no job {number}", hint="see `pilotage job ls`")
                job = records.get(db, number)
                if not client.grant.acts_for(job.owner):
                    raise errors.Denied(f"job {number} is not yours", hint="ask its owner")
                states[number] = str(moves.cancel(db, job, now=self._clock.now()))
            return states

        states = await self._writer.run(step)
        self._queue.poke()
        self._ring([])
        return {"states": states}

    def _ring(self, _ended: object) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
