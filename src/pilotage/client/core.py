"""Sans-I/O core of the client: calls in, put together into jobs, messages out, results back.

Whatever happens to the connection, each call that is added is answered exactly once.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pilotage.base import errors, text
from pilotage.client.model import CallRange, Delivery, Parcel, Returns, Ticket
from pilotage.client.where import Address
from pilotage.job.model import Ended, JobEnd
from pilotage.link import codec

#: Cores of which is spoken when the hub does not say.
SLOTS = 64
#: Longest and shortest duration that a job should have, in seconds.
LONGEST_S = 0.05
SHORTEST_S = 0.001
#: Seconds after which a worker returns calls that it has not started.
WITHIN_S = 0.25
#: Calls that are sent one by one to learn how long they take; twice as many after this time.
PROBES = 8
PROBE_S = 0.05
#: Bytes of calls, and of what they return, in one job.
_JOB_BYTES = 1 << 20
#: What a call costs on its way, however quick it is.
_WAY_S = 1e-6
_NEWEST = 0.3


@dataclass(eq=False)
class CallQueue:
    """The calls of one function that wait, and what is known of how long they take."""

    spec: bytes
    #: How many calls make a job, if that is not ours to choose.
    fixed: int = 0
    #: Jobs on their way.
    away: int = field(default=0, init=False)
    #: Since when there is something on its way.
    since: float = field(default=0.0, init=False)
    waiting: deque[CallRange] = field(default_factory=deque, init=False)
    #: Calls of jobs whose worker died: each of them goes alone.
    alone: deque[CallRange] = field(default_factory=deque, init=False)
    count: int = field(default=0, init=False)
    _wall: float | None = field(default=None, init=False)
    _bytes: float = field(default=1.0, init=False)

    def add(self, part: CallRange) -> None:
        """Let calls wait."""
        self.waiting.append(part)
        self.count += len(part.calls)

    def put_back(self, parts: list[CallRange], *, alone: bool = False) -> None:
        """Queue calls again, before all others."""
        for part in reversed(parts):
            (self.alone if alone else self.waiting).appendleft(part)
            self.count += len(part.calls)

    def learn(self, wall: float, count: int, size: int) -> None:
        """Take in how long calls took, and how long what they returned is."""
        each, long = wall / count, size / count
        if self._wall is None:
            self._wall, self._bytes = each, long
        self._wall += _NEWEST * (each - self._wall)
        self._bytes = max(self._bytes + _NEWEST * (long - self._bytes), 1.0)

    def size(self, slots: int, now: float) -> int:
        """Return how many calls the next job holds; 0 if it is better to wait."""
        if self.alone or self.fixed:
            return 1 if self.alone else self.fixed
        if self._wall is None:
            return int(self.away < self._probes(now))
        each = self._wall + _WAY_S
        most = min(LONGEST_S / each, _JOB_BYTES / self._bytes)
        if most >= 2 and self.away >= 4 * slots + 16:
            return 0
        some = max(SHORTEST_S / each, self.count / (4 * slots))
        return max(1, math.ceil(min(most, some)))

    def _probes(self, now: float) -> float:
        """Return how many calls may be away that nothing is known of; the longer, the more."""
        return PROBES * 2 ** min(16, max(0.0, now - self.since) // PROBE_S) if self.away else PROBES

    def due(self, now: float) -> float | None:
        """Return when more calls go although none has returned."""
        if self.count and self._wall is None and not self.fixed and self.away >= PROBES:
            return now + PROBE_S - (now - self.since) % PROBE_S
        return None

    def take(self, most: int) -> list[CallRange]:
        """Take calls out of those that wait, and drop the abandoned ones."""
        return list(self._take(self.alone or self.waiting, most))

    def _take(self, queue: deque[CallRange], most: int) -> Iterator[CallRange]:
        left, room = most, _JOB_BYTES
        while queue and left > 0 and room > 0:
            part = queue[0]
            if not part.ticket.wanted:
                self.count -= len(part.calls) - part.gone
                queue.popleft()
                continue
            taken = _fit(part.calls[part.gone : part.gone + left], room, most == left)
            if not taken:
                return
            yield CallRange(part.ticket, part.at + part.gone, taken)
            part.gone += len(taken)
            self.count -= len(taken)
            left -= len(taken)
            room -= sum(map(len, taken))
            if part.gone == len(part.calls):
                queue.popleft()


def _fit(calls: list[bytes], room: int, first: bool) -> list[bytes]:  # noqa: FBT001 - private
    """Take as many calls as there is room for; the first of all in any case."""
    if sum(map(len, calls)) <= room:
        return calls
    for at, call in enumerate(calls):
        room -= len(call)
        if room < 0:
            return calls[: max(int(first), at)]
    return calls


class RawEnd(JobEnd, frozen=True):
    """The end of a job whose result is not read yet."""

    result: msgspec.Raw = msgspec.Raw(b"")


class Reply(msgspec.Struct):
    """Any answer of the hub."""

    #: The number of the request; none if the hub did not understand it.
    n: int | None = None
    error: dict[str, Any] | None = None
    ids: list[int] = []
    #: Why some of these jobs will wait for their sites.
    notes: list[str] = []
    ends: list[RawEnd] = []
    after: int = 0
    cpus: int = 0
    states: dict[str, str] = {}
    owner: str = ""


_replies = msgspec.json.Decoder(Reply)
_results = msgspec.json.Decoder(Returns)


def read(message: bytes) -> Reply:
    """Read an answer."""
    try:
        return _replies.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.Unavailable(f"the hub sent an invalid answer: {error}") from None


def returns(end: RawEnd) -> Returns:
    """Read what calls returned."""
    data = bytes(end.result)
    if data[:1] != b"{":
        return Returns()
    try:
        return _results.decode(data)
    except msgspec.DecodeError:
        # It is the result of something else than calls.
        return Returns()


def counts(end: RawEnd, found: Returns) -> bool:
    """Return whether what a call with files returned or raised is the end of it.

    A call that returned may have failed all the same: a declared output is missing.
    """
    raised = bool(found.returns) and found.returns[0].error is not None
    return end.state == "done" or (end.state == "failed" and raised)


def failure(end: RawEnd) -> errors.JobFailed:
    """Return why a job did not end well."""
    why = end.reason or ("its result was not kept" if end.state == "done" else "")
    return errors.JobFailed(f"job {end.job} is {end.state}: {why}", job=end.job, state=end.state)


def refusal(error: dict[str, Any]) -> errors.PilotageError:
    """Convert an error reply of the hub to an exception."""
    kind = errors.by_code(str(error.get("code")))
    return kind(str(error.get("message")), hint=str(error.get("hint", "")))


_log = logging.getLogger("pilotage.client")
PROTOCOL = 1
#: How long the hub may wait for ends before it answers that there are none.
WAIT_S = 30.0
#: Silence after which a connection counts as dead.
SILENCE_S = WAIT_S + 15.0
#: Pause before a request is repeated that the hub could not answer now.
PAUSE_S = 0.5
#: Requests to submit at once, and jobs in each.
_SUBMITS = 2
_JOBS = 500
_BULK = 4 << 20


class Core:
    """The calls and jobs of one client, from the first message to the last."""

    def __init__(self, token: str, tag: str, host: str) -> None:
        """Create the core; nothing is sent before `connected`."""
        self.tag = tag
        self.slots = SLOTS
        #: Our owner name at the hub, once known.
        self.owner = ""
        #: Whether the hub has let us in.
        self.ready = False
        #: Why it never will.
        self.refused: errors.PilotageError | None = None
        self._token, self._host = token, host
        self._kinds: dict[tuple[bytes, int], CallQueue] = {}
        #: Jobs that have not been sent, or whose sending was not confirmed.
        self._unsent: deque[Parcel] = deque()
        self._asks: deque[tuple[str, dict[str, Any], Ticket]] = deque()
        self._jobs: dict[int, Parcel] = {}
        #: Ends of jobs whose numbers we have not heard yet.
        self._early: dict[int, RawEnd] = {}
        #: What the hub said of jobs that wait for their sites; each is reported once.
        self._noted: set[str] = set()
        self._after = 0
        self._number = 0
        self._incoming = codec.Incoming()
        self._open: dict[int, tuple[str, Any]] = {}
        #: How many requests of the open ones submit jobs.
        self._submits = 0
        self._out: list[bytes] = []
        self._heard = 0.0
        self._not_before = 0.0

    # -- what is wanted --------------------------------------------------------------------------

    def add(self, spec: bytes, part: CallRange, fixed: int = 0) -> None:
        """Take calls of a function; with `fixed`, a job has that many of them."""
        kind = self._kinds.get((spec, fixed))
        if kind is None:
            kind = self._kinds[spec, fixed] = CallQueue(spec, fixed)
        kind.add(part)

    def add_job(self, spec: bytes, ticket: Ticket, binding: bytes = b"{}") -> None:
        """Take a job that is sent as it is."""
        ticket.parcel = Parcel(spec, binding, [CallRange(ticket, 0, [b""])])
        self._unsent.append(ticket.parcel)

    def add_call(self, spec: bytes, part: CallRange, binding: bytes) -> None:
        """Take a call that is a job of its own."""
        part.ticket.parcel = Parcel(spec, binding, [part], calls=True)
        self._unsent.append(part.ticket.parcel)

    def ask(self, op: str, fields: dict[str, Any], ticket: Ticket) -> None:
        """Take a request that may be repeated without harm."""
        self._asks.append((op, fields, ticket))

    def drop(self, ticket: Ticket) -> None:
        """Forget a ticket; its job is cancelled if no other has a call in it."""
        ticket.wanted = False
        parcel = ticket.parcel
        if parcel is not None and parcel.count == 1 and parcel.job in self._jobs:
            self.ask("cancel", {"jobs": [parcel.job]}, Ticket())

    @property
    def unsafe(self) -> bool:
        """Return whether something is not on the hub's disk yet."""
        asked = any(op == "cancel" for op, _ in self._open.values())
        waits = any(kind.count for kind in self._kinds.values())
        return bool(asked or waits or self._submits or self._unsent or self._asks)

    @property
    def eager(self) -> bool:
        """Return whether something that is added now would be sent now."""
        return self.ready and (self._submits < _SUBMITS or bool(self._asks))

    # -- the connection --------------------------------------------------------------------------

    def connected(self, now: float) -> None:
        """Begin on a new connection."""
        self._incoming = codec.Incoming()
        self._out = [codec.greeting(self._host)]
        self._send("login", {"protocol": PROTOCOL, "token": self._token}, None)
        self._heard = now

    def lost(self) -> None:
        """Take back all that was not answered."""
        for op, what in reversed(self._open.values()):
            if op == "submit":
                self._unsent.extendleft(reversed(what))
            elif op not in ("login", "ends"):
                self._asks.appendleft(what)
        self._open.clear()
        self._submits = 0
        self._out = []
        self.ready = False

    def stale(self, now: float) -> bool:
        """Return whether the other side should have spoken long ago."""
        return bool(self._open) and now > self._heard + SILENCE_S

    def due(self, now: float) -> float:
        """Return in how many seconds there is something to do, if nothing happens before."""
        waits = [30.0]
        if self.ready:
            waits += [
                at - now for kind in self._kinds.values() if (at := kind.due(now)) is not None
            ]
        if self._unsent or self._asks:
            waits.append(self._not_before - now if self._not_before > now else 30.0)
        return max(0.0, min(waits))

    def outgoing(self, now: float) -> bytes:
        """Return what is to be sent now."""
        if self.ready and now >= self._not_before:
            self._request(now)
        data, self._out = b"".join(self._out), []
        return data

    def receive(self, data: bytes, now: float) -> list[Delivery]:
        """Take what has arrived; return what came of it."""
        self._heard = now
        found: list[Delivery] = []
        for message in self._incoming.feed(data):
            found += self._reply(read(message), now)
        return found

    # -- requests --------------------------------------------------------------------------------

    def _send(self, op: str, fields: dict[str, Any], what: Any) -> None:  # noqa: ANN401 - by op
        self._number += 1
        self._open[self._number] = (op, what)
        self._submits += op == "submit"
        message = msgspec.json.encode({"op": op, "n": self._number, **fields})
        self._out.append(codec.frame(message))

    def _request(self, now: float) -> None:
        while self._asks:
            op, fields, ticket = self._asks.popleft()
            self._send(op, fields, (op, fields, ticket))
        while self._submits < _SUBMITS and (parcels := self._gather(now)):
            self._submit(parcels)
        listening = any(op == "ends" for op, _ in self._open.values())
        if (self._jobs or self._submits) and not listening:
            self._send("ends", {"tag": self.tag, "after": self._after, "wait": WAIT_S}, None)

    def _submit(self, parcels: list[Parcel]) -> None:
        self._send("submit", {"jobs": [self._job(parcel) for parcel in parcels]}, parcels)

    def _job(self, parcel: Parcel) -> dict[str, Any]:
        return {
            "spec": msgspec.Raw(parcel.spec),
            "binding": msgspec.Raw(parcel.binding),
            "key": parcel.key,
            "tag": self.tag,
        }

    def _gather(self, now: float) -> list[Parcel]:
        """Choose what the next request carries: what was sent before, then calls that wait."""
        parcels: list[Parcel] = []
        room = _BULK
        while self._unsent and len(parcels) < _JOBS and room > 0:
            parcel = self._unsent.popleft()
            if parcel.parts:
                parcels.append(parcel)
                room -= len(parcel.binding) + len(parcel.spec)
        for kind in self._kinds.values():
            while kind.count and len(parcels) < _JOBS and room > 0:
                parcel_ = self._pack(kind, now)
                if parcel_ is None:
                    break
                parcels.append(parcel_)
                room -= len(parcel_.binding) + len(parcel_.spec)
        return parcels

    def _pack(self, kind: CallQueue, now: float) -> Parcel | None:
        size = kind.size(self.slots, now)
        parts = kind.take(size) if size else []
        if not parts:
            return None
        calls = b",".join(call for part in parts for call in part.calls)
        limit = b"" if size == 1 or kind.fixed else b',"within":%g' % WITHIN_S
        parcel = Parcel(
            kind.spec, b'{"data":{"calls":[' + calls + b"]" + limit + b"}}", parts, kind
        )
        for part in parts:
            part.ticket.parcel = parcel
        if not kind.away:
            kind.since = now
        kind.away += 1
        return parcel

    # -- replies ---------------------------------------------------------------------------------

    def _reply(self, reply: Reply, now: float) -> Iterable[Delivery]:
        op, what = self._open.pop(reply.n or 0, ("", None))
        self._submits -= op == "submit"
        if reply.n is None:
            # It did not even understand whom to answer, and would not the next time.
            op = "login"
        if reply.error is not None:
            return self._refusal(op, what, refusal(reply.error), now)
        if op == "login":
            self.ready = True
            self.owner, self.slots = reply.owner, reply.cpus or self.slots
        elif op == "submit":
            for note in set(reply.notes) - self._noted:
                _log.warning("%s", note)
            self._noted |= set(reply.notes)
            return self._confirm(what, reply.ids)
        elif op == "ends":
            self._after = max(self._after, reply.after)
            return [one for end in reply.ends for one in self._end(end)]
        elif op:
            return [Delivery(what[2], 0, None, [], answer=reply.states)]
        return ()

    def _refusal(
        self, op: str, what: Any, error: errors.PilotageError, now: float  # noqa: ANN401 - by op
    ) -> Iterator[Delivery]:  # fmt: skip
        if error.retryable and op:
            self._not_before = now + PAUSE_S
            if op == "submit":
                self._unsent.extendleft(reversed(what))
            elif op == "login":
                raise error
            elif op != "ends":
                self._asks.appendleft(what)
        elif op == "submit":
            yield from self._split(what, error)
        elif op in ("login", "ends"):
            self.refused = error
            yield from self.fail(error)
        elif op:
            yield Delivery(what[2], 0, None, [], error)

    def _split(self, parcels: list[Parcel], error: errors.PilotageError) -> Iterator[Delivery]:
        """Find out which of several jobs is the bad one, by sending each half by itself."""
        if len(parcels) == 1:
            yield from self._fail(parcels[0], error)
            return
        middle = len(parcels) // 2
        for half in (parcels[:middle], parcels[middle:]):
            self._submit(half)

    def _confirm(self, parcels: list[Parcel], ids: list[int]) -> Iterator[Delivery]:
        """Note the numbers of jobs that are on the hub's disk."""
        for parcel, job in zip(parcels, ids, strict=True):
            parcel.job = job
            self._jobs[job] = parcel
            if parcel.count == 1 and not parcel.parts[0].ticket.wanted:
                self.ask("cancel", {"jobs": [job]}, Ticket())
            if (early := self._early.pop(job, None)) is not None:
                yield from self._end(early)
        if not self._submits:
            # The rest is not ours: all numbers that we wait for are known.
            self._early.clear()

    def _end(self, end: RawEnd) -> Iterator[Delivery]:
        parcel = self._jobs.pop(end.job, None)
        if parcel is None:
            self._early[end.job] = end
            return
        if not parcel.calls:
            yield self._ended(parcel, end)
            return
        found = returns(end)
        if found.returns and parcel.kind is None and counts(end, found):
            yield self._own(parcel, found)
        elif found.returns and parcel.kind is not None and end.state == "done":
            parcel.kind.away -= 1
            parcel.kind.learn(found.wall, len(found.returns), len(bytes(end.result)))
            yield from self._hand_out(parcel, found)
        elif end.state == "failed" and parcel.kind is not None and parcel.count > 1:
            # One of them ended the worker: alone, each shows whether it was that one.
            parcel.kind.away -= 1
            parcel.kind.put_back(list(_singles(parcel)), alone=True)
        else:
            yield from self._fail(parcel, failure(end))

    def _ended(self, parcel: Parcel, end: RawEnd) -> Delivery:
        ticket = parcel.parts[0].ticket
        if end.state != "done":
            return Delivery(ticket, 0, end.job, [], failure(end))
        data = bytes(end.result)
        ended = Ended(end.job, end.state, end.reason, text.load(data) if data else None)
        return Delivery(ticket, 0, end.job, [], answer=ended)

    def _own(self, parcel: Parcel, found: Returns) -> Delivery:
        """Give the ticket of a call that is a job of its own what that returned."""
        (part,) = parcel.parts
        left = found.left.get(0, [])
        return Delivery(part.ticket, part.at, parcel.job, found.returns[:1], left=left)

    def _hand_out(self, parcel: Parcel, found: Returns) -> Iterator[Delivery]:
        """Give each ticket what its calls returned; calls that were not made go again."""
        at = 0
        for number, part in enumerate(parcel.parts):
            mine = found.returns[at : at + len(part.calls)]
            if mine:
                one = Delivery(part.ticket, part.at, parcel.job, mine)
                if found.left:
                    calls = range(at, at + len(mine))
                    one.left = [name for call in calls for name in found.left.get(call, ())]
                yield one
            at += len(part.calls)
            if len(mine) < len(part.calls):
                rest = CallRange(part.ticket, part.at + len(mine), part.calls[len(mine) :])
                parcel.kind.put_back([rest, *parcel.parts[number + 1 :]])
                return

    def fail(self, error: errors.PilotageError) -> Iterator[Delivery]:
        """Give up on everything."""
        away = [what for op, what in self._open.values() if op == "submit"]
        parcels = [*self._jobs.values(), *self._unsent, *(one for each in away for one in each)]
        self._jobs.clear()
        self._unsent.clear()
        self._open.clear()
        self._submits = 0
        for parcel in parcels:
            yield from self._fail(parcel, error)
        for kind in self._kinds.values():
            while parts := kind.take(1 << 20):
                for part in parts:
                    yield Delivery(part.ticket, part.at, None, [], error, len(part.calls))
        while self._asks:
            yield Delivery(self._asks.popleft()[2], 0, None, [], error)

    def _fail(self, parcel: Parcel, error: Exception) -> Iterator[Delivery]:
        if parcel.kind is not None:
            parcel.kind.away -= 1
        for part in parcel.parts:
            yield Delivery(part.ticket, part.at, parcel.job, [], error, len(part.calls))


def core(address: Address) -> Core:
    """Create the core of a client, with a label that is unique to its jobs."""
    return Core(address.token, f"py-{secrets.token_hex(8)}", address.name)


def _singles(parcel: Parcel) -> Iterator[CallRange]:
    for part in parcel.parts:
        for number, call in enumerate(part.calls):
            yield CallRange(part.ticket, part.at + number, [call])
