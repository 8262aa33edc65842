"""One connection of a pilot, program or agent: frames in, answers out.

Programs submit jobs over it and wait for their ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from asyncio import wrap_future
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, cast

import msgspec

from pilotage.base import errors
from pilotage.base.clock import Clock
from pilotage.base.supervise import Background
from pilotage.edge.enrolment import AgentEnrolment
from pilotage.job import moves, records
from pilotage.job.model import JobSpec
from pilotage.match import submission
from pilotage.match.queue import JobQueue
from pilotage.pilot import messages
from pilotage.pilot.enrolment import Enrolment
from pilotage.pilot.model import PROTOCOL
from pilotage.pilot.table import Pilot
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


_log = logging.getLogger("pilotage.link")
_END = b"\r\n\r\n"
#: The longest request for a link, and how much may wait to be read by the other side.
_LONGEST = 8192
_WAITING = 64 << 20
#: Most bytes of a message before authentication, and seconds until it must be complete.
_STRANGER = 1 << 20
_PATIENCE_S = 30.0
#: Pilots that one connection may hold, and questions that are being answered at once.
_MOST_PILOTS = 50_000
_MOST_TASKS = 256


class PortConnection(asyncio.Protocol):
    """One connection; several pilots may share it."""

    def __init__(self, desk: Enrolment, clients: Clients, agents: AgentEnrolment) -> None:
        self._desk = desk
        self._clients = clients
        self._agents = agents
        self._frames = messages.Frames(_STRANGER)
        self._asked: bytes | None = b""
        self._pilots: dict[int, Pilot] = {}
        self._client: Client | None = None
        self._beside = Background(_log, "a connection", self._ended)
        self._timer: asyncio.TimerHandle | None = None
        self._full = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._timer = asyncio.get_running_loop().call_later(_PATIENCE_S, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """End; the pilots are expected back."""
        del exc
        self._known()
        for pilot in self._pilots.values():
            self._desk.cut(pilot, self)
        self._beside.cancel()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes."""
        if self._asked is not None:
            self._asked += data
            end = self._asked.find(_END)
            if end < 0:
                if len(self._asked) > _LONGEST:
                    self._transport.close()
                return
            data, self._asked = self._asked[end + len(_END) :], None
            self._transport.write(messages.UPGRADED)
        try:
            for body in self._frames.feed(data):
                self._take(body)
        except errors.UsageError as error:
            # Who speaks another language is not understood later either.
            self.send(messages.refusal(None, 0, error))
            self._transport.close()

    def send(self, data: bytes) -> None:
        """Send an answer, unless the receiver does not read."""
        if self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > _WAITING:
            _log.warning("a link that does not read its answers is closed")
            self._transport.abort()
            return
        self._transport.write(data)

    def _take(self, body: bytes) -> None:
        message = messages.read(body)
        match message:
            case messages.Sync():
                self._desk.sync(self._pilot(message), message, self)
            case messages.PayloadLog():
                self._desk.log(self._pilot(message), message)
            case messages.DataChannel():
                self._hand_over(message)
            case messages.Agent():
                self._start(self._leave_to_agent(message))
            case _:
                self._start(self._answer(message))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._beside.start(work)
        if len(self._beside) >= _MOST_TASKS and not self._full:
            self._full = True
            self._transport.pause_reading()

    async def _leave_to_agent(self, message: messages.Agent) -> None:
        """Hand a connection to the agent of a site; it must be its only user."""
        try:
            self._check_unused()
            # Its key counts or not, also when the connection breaks meanwhile.
            one, version = await asyncio.shield(self._agents.admit(message))
            self._check_unused()
        except errors.PilotageError as error:
            self.send(messages.refusal(message.n, message.p, error))
            self._transport.close()
            return
        self._known()
        if not self._transport.is_closing():
            self.send(messages.answer(message, {"site": one.site, "version": version}))
            self._agents.take_over(self._transport, one)

    def _check_unused(self) -> None:
        """Refuse to hand over a connection that others use."""
        if self._pilots or self._client or len(self._beside) > 1:
            raise errors.UsageError("this connection is for messages", hint="open another")

    def _hand_over(self, message: messages.DataChannel) -> None:
        """Hand a connection to the data of a pilot; it must be its only user."""
        try:
            pilot = self._desk.carry(message)
            if self._pilots or self._client or self._beside:
                raise errors.UsageError("this connection is for messages", hint="open another")
        except errors.PilotageError as error:
            self.send(messages.refusal(message.n, message.p, error))
            self._transport.close()
            return
        self._known()
        self.send(messages.answer(message, {}))
        self._desk.take_over(self._transport, pilot)

    def _ended(self) -> None:
        if self._full and len(self._beside) <= _MOST_TASKS // 2:
            self._full = False
            self._transport.resume_reading()

    def _known(self) -> None:
        """Raise the limits of a connection after authentication."""
        self._frames.most = messages.MOST_FRAME_BYTES
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _pilot(self, message: messages.Message) -> Pilot:
        pilot = self._pilots.get(message.p)
        if pilot is None:
            raise errors.UsageError("not enrolled", hint="send `hello` or `resume` first")
        return pilot

    async def _answer(self, message: messages.Any_) -> None:
        try:
            self.send(messages.answer(message, await self._do(message)))
        except errors.PilotageError as error:
            self.send(messages.refusal(message.n, message.p, error))
        except Exception:  # noqa: BLE001 - the caller must not wait for ever
            _log.exception("a message could not be dealt with")
            failure = errors.PilotageError("an internal error of the hub", hint="its log says more")
            self.send(messages.refusal(message.n, message.p, failure))

    def _enter(self, p: int, pilot: Pilot) -> None:
        """Bind a pilot to the connection; if it broke meanwhile, the pilot is gone."""
        self._known()
        if self._transport.is_closing():
            self._desk.cut(pilot, self)
        elif len(self._pilots) >= _MOST_PILOTS and p not in self._pilots:
            self._desk.cut(pilot, self)
            raise errors.Denied(f"one connection holds at most {_MOST_PILOTS} pilots")
        else:
            self._pilots[p] = pilot

    async def _do(self, message: messages.Any_) -> dict[str, object]:
        match message:
            case messages.Hello():
                # Enrolment completes or fails, also if the connection breaks meanwhile.
                pilot = await asyncio.shield(self._desk.enrol(message, self))
                self._enter(message.p, pilot)
                return self._desk.terms(pilot)
            case messages.Resume():
                pilot, found = await self._desk.resume(message, self)
                self._enter(message.p, pilot)
                return found
            case messages.Ready():
                await self._desk.ready(self._pilot(message), message)
            case messages.Leave():
                await self._desk.leave(self._pilot(message), message.reason)
            case messages.Login():
                self._client = self._clients.login(message)
                self._known()
                return {"owner": self._client.owner}
            case messages.Submit() | messages.AwaitEnds() | messages.Cancel():
                if self._client is None:
                    raise errors.Denied("not logged in", hint="log in first")
                return await self._clients.do(self._client, message)
            case (
                messages.Sync() | messages.PayloadLog() | messages.DataChannel() | messages.Agent()
            ):
                raise AssertionError("these were taken before")
        return {}
