"""Live updates: changes in the store, sent to all listeners as server-sent events."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from msgspec import UNSET

from pilotage.base import text
from pilotage.base.wakeup import Wakeup
from pilotage.flow import view as look
from pilotage.hub.api import answers, jobs, pilots, queries
from pilotage.hub.api.call import ApiCall
from pilotage.hub.api.overview import Overviews, alarms
from pilotage.hub.api.reader import Readers
from pilotage.job.model import JobEnd
from pilotage.store import Db

_log = logging.getLogger("pilotage.hub")
#: Seconds between two reads: at least, and at most while there are listeners.
_LEAST_S = 0.05
_MOST_S = 0.5
#: How often each kind of event is sent at most.
_EVERY_S = {"jobs": 0.25, "flows": 0.5, "overview": 1.0, "alarms": 1.0, "pilots": 2.0}
#: Silence is broken so often, so that both ends know that the line stands.
_HEARTBEAT_S = 15.0
#: Lines whose jobs are sent with one event; with more the page reloads its list.
_MOST_LINES = 1000
_MOST_PILOTS = 2000
_MOST_FLOWS = 100
#: Events that wait for a reader; one that does not keep up is let go, and comes back.
_QUEUE = 64


class Live:
    """Follows the journal while there are listeners."""

    def __init__(
        self,
        readers: Readers,
        whole: Overviews,
        now: Callable[[], float],
        call_soon: Callable[..., Any],
    ) -> None:
        """Wake through the event loop's `call_soon_threadsafe`."""
        self.readers = readers
        self.closed = False
        #: The newest line of the journal, and how often it was another.
        self.last = 0
        self.seen = 0
        self._whole = whole
        self._now = now
        self._bell = Wakeup(call_soon)
        self._moved = anyio.Event()
        self._watchers = 0
        self._ears: set[MemoryObjectSendStream[bytes]] = set()
        self._line = 0
        #: The newest line of the story of flows that was sent.
        self._flow_line: int | None = None
        self._sent: dict[str, float] = {}
        self._told: dict[str, Any] = {}
        self._flown: dict[int, answers.PilotRow] = {}

    def poke(self, _ended: object = None) -> None:
        """Read soon: the store has changed, as when jobs ended; callable from any thread."""
        self._bell.set()

    def close(self) -> None:
        """Disconnect all listeners."""
        self.closed = True
        self._move()
        for ear in list(self._ears):
            ear.close()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Follow the journal while the block runs."""
        self._watchers += 1
        self.poke()
        try:
            yield
        finally:
            self._watchers -= 1

    async def moved(self, seen: int, patience: float) -> None:
        """Wait until the journal has grown since a look, or for some time."""
        if self.seen == seen and not self.closed:
            with anyio.move_on_after(patience):
                await self._moved.wait()

    async def run(self) -> None:
        """Follow the journal until cancelled; then close the readers."""
        try:
            while True:
                await self._bell.wait(_MOST_S if self._watchers else None)
                if self._watchers and not self.closed:
                    await self._look()
                await anyio.sleep(_LEAST_S)
        finally:
            self.readers.close()

    async def _look(self) -> None:
        try:
            await self._tell_news()
        except Exception:  # noqa: BLE001 - work goes on, also when it cannot be shown
            _log.exception("cannot determine what is new")

    async def _tell_news(self) -> None:
        last = int(await self.readers.ask(lambda db: db.value("journal_last")))
        if last != self.last:
            self.last = last
            self._move()
        if self._ears:
            for data in await self.readers.ask(self._news):
                self._send(data)
        else:
            self._line = last

    def _move(self) -> None:
        self.seen += 1
        self._moved.set()
        self._moved = anyio.Event()

    def _send(self, data: bytes) -> None:
        for ear in list(self._ears):
            try:
                ear.send_nowait(data)
            except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
                self._ears.discard(ear)
                ear.close()

    # -- what is new, in a worker thread ---------------------------------------------------------

    def _news(self, db: Db) -> list[bytes]:
        """Write the events that are due."""
        found = []
        if self._line < self.last and self._due("jobs"):
            found.append(changed(db, self._line))
            self._line = int(db.value("journal_last"))
        if self._due("flows"):
            found += self._flows(db)
        if self._due("overview"):
            now = self._now()
            since = self._told.get("since", now)
            view = self._whole.overview(db, now, since)
            if view.history:
                self._told["since"] = view.history[-1][0]
            found.append(event("overview", view))
        if self._due("alarms"):
            found += self._if_new("alarms", {"alarms": alarms(db)})
        if self._due("pilots"):
            found += self._pilots(db)
        return found

    def _due(self, kind: str) -> bool:
        now = time.monotonic()
        if now - self._sent.get(kind, 0.0) < _EVERY_S[kind]:
            return False
        self._sent[kind] = now
        return True

    def _if_new(self, kind: str, facts: Any) -> list[bytes]:  # noqa: ANN401 - any answer
        if self._told.get(kind) == facts:
            return []
        self._told[kind] = facts
        return [event(kind, facts)]

    def _flows(self, db: Db) -> list[bytes]:
        """Write the flows that have changed since."""
        last = int(db.value("see_line"))
        before, self._flow_line = self._flow_line, last
        if before is None or before == last:
            return []
        changed = [row[0] for row in db.rows("see_changed", after=before, most=_MOST_FLOWS + 1)]
        rows = look.some(db, changed[:_MOST_FLOWS])
        return [event("flows", {"flows": rows, "more": len(changed) > _MOST_FLOWS})]

    def _pilots(self, db: Db) -> list[bytes]:
        """Write the pilots that have changed since they were sent last."""
        after = int(db.value("api_pilot_last")) - _MOST_PILOTS
        since = self._now() - 60.0
        rows = db.rows("api_pilots_live", after=after, since=since, most=_MOST_PILOTS)
        now = {one.id: one for one in map(pilots.row, rows)}
        fresh = [one for number, one in now.items() if one != self._flown.get(number)]
        self._flown = now
        return [event("pilots", {"pilots": fresh})] if fresh else []

    # -- one who listens -------------------------------------------------------------------------

    async def listen(self, call: ApiCall, since: int | None) -> AsyncIterator[bytes]:
        """Yield events from now on, or from where a reader was cut off."""
        send, receive = anyio.create_memory_object_stream[bytes](_QUEUE)
        with self.watching(), send, receive:
            if not self._ears:
                # The first events of a listener report these already.
                self._line, self._told["alarms"] = await self.readers.ask(_standing)
            if self.closed:
                return
            self._ears.add(send)
            try:
                for data in await self.readers.ask(lambda db: self._first(db, call.now, since)):
                    yield data
                while True:
                    data = b": still here\n\n"
                    with anyio.move_on_after(_HEARTBEAT_S):
                        data = await receive.receive()
                    yield data
            except anyio.EndOfStream:
                return
            finally:
                self._ears.discard(send)

    def _first(self, db: Db, now: float, since: int | None) -> list[bytes]:
        found = [b"retry: 1000\n\n"]
        if since is not None:
            found.append(changed(db, since))
        last = int(db.value("journal_last"))
        found.append(event("overview", self._whole.overview(db, now, now), last))
        found.append(event("alarms", {"alarms": alarms(db)}))
        return found


def _standing(db: Db) -> tuple[int, Any]:
    """Return the newest line of the journal, and the alarms that are raised."""
    return int(db.value("journal_last")), {"alarms": alarms(db)}


def changed(db: Db, line: int) -> bytes:
    """Write the jobs that changed after a line of the journal."""
    last = int(db.value("journal_last"))
    rows = db.rows("api_jobs_changed", after=line, most=_MOST_LINES)
    facts = {"jobs": jobs.rows(db, rows), "more": last - line > _MOST_LINES}
    return event("jobs", facts, last)


def event(name: str, facts: Any, line: int | None = None) -> bytes:  # noqa: ANN401 - any answer
    """Write a server-sent event; JSON has no line breaks of its own."""
    mark = "" if line is None else f"id: {line}\n"
    return f"{mark}event: {name}\ndata: {text.dump(facts)}\n\n".encode()


_MOST = 1000
#: Lines of the journal that are read at once.
_WINDOW = 50_000


def after(db: Db, tag: str, line: int) -> answers.EndPage:
    """Read the ends that follow a line of the journal, so far as one look goes."""
    last = int(db.value("journal_last"))
    until = min(last, line + _WINDOW)
    rows = db.rows("api_ends", after=line, until=until, tag=tag, most=_MOST)
    found = [
        JobEnd(job, state, reason, None if body is None else text.load(body), seq)
        for seq, job, state, reason, body in rows
    ]
    return answers.EndPage(found, found[-1].seq if len(found) == _MOST else max(line, until))


async def wait(live: Live, call: ApiCall) -> answers.EndPage:
    """Answer as soon as there is an end, or when the time is up."""
    wanted: queries.EndsAsk = call.query
    deadline = time.monotonic() + wanted.wait
    if wanted.after is UNSET:
        line = int(await live.readers.ask(lambda db: db.value("journal_last")))
    else:
        line = wanted.after
    with live.watching():
        while True:
            seen = live.seen
            look = functools.partial(after, tag=wanted.tag, line=line)
            found = await live.readers.ask(look)
            moved, line = found.after > line, found.after
            left = deadline - time.monotonic()
            if found.ends or left <= 0 or live.closed:
                return found
            if not moved or line >= live.last:
                await live.moved(seen, left)
