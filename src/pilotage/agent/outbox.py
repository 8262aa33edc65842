"""What is to be said reaches the bus: in order for each job, and is forgotten only when it did."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Sequence

import anyio
import anyio.to_thread

from pilotage.agent import records, tell
from pilotage.agent.model import Word
from pilotage.agent.records import Receivers
from pilotage.agent.settings import Settings
from pilotage.base import crash, errors
from pilotage.bus.port import Bus
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.edge")
#: Seconds until the next look if nobody has told of anything new.
_LOOK_S = 1.0
#: How long news waits at most while many jobs come in, and how often that is looked at.
_CROWDED_S = 2.0
_GLANCE_S = 0.05
#: Seconds before the bus is tried again that took nothing.
_PAUSE_S = 1.0
#: How long a topic is not tried that the broker keeps from us, and how many are remembered.
_DENIED_S = 60.0
_MOST_DENIED = 10_000
#: Messages that are looked at together, and those on the way to the bus at once.
_MOST = 500
_AT_ONCE = 100
#: Beyond so many that wait, what is old news is dropped; ends are not.
_TOO_MANY = 10_000


class Outbox:
    """Says what the store holds to be said."""

    def __init__(
        self, bus: Bus, writer: Writer, open_reader: Callable[[], Db],
        settings: Callable[[], Settings], now: Callable[[], float],
        crowded: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """Get ready; nothing happens before `run`. News waits a little while it is `crowded`."""
        self._bus = bus
        self._writer = writer
        self._open_reader = open_reader
        self._settings = settings
        self._now = now
        self._crowded = crowded
        #: How many messages wait.
        self.depth = 0
        self._counted = 0.0
        self._after = 0
        #: Up to which message, and until when at least, others come before one that failed.
        self._last, self._due = 0, 0.0
        #: Jobs of which a message could not be sent: later ones must wait for it.
        self._stuck: set[int] = set()
        #: Topics that the broker keeps from us, and until when they are not tried.
        self._denied: dict[str, float] = {}
        #: Messages that are a mistake of ours.
        self._odd: set[int] = set()
        self._trouble = ""
        self._new = asyncio.Event()

    async def run(self) -> None:
        """Send until cancelled."""
        db, loop = self._open_reader(), asyncio.get_running_loop()
        wake = functools.partial(loop.call_soon_threadsafe, self._new.set)
        with contextlib.closing(db), self._writer.telling(wake):
            while True:
                self._new.clear()
                if self._after >= self._last and anyio.current_time() >= self._due:
                    # What could not be sent is tried again, however much else there is to say.
                    self._after, self._stuck = 0, set()
                words = records.unsent(db, self._after, _MOST, self._receivers())
                if words:
                    await self._give_way()
                    await self._round(db, words)
                elif self._after:
                    # All that could be sent is; what could not needs a rest.
                    self._last = self._after
                    await anyio.sleep_until(self._due)
                else:
                    self._all_sent()
                    with anyio.move_on_after(_LOOK_S):
                        await self._new.wait()

    def _receivers(self) -> Receivers:
        """Return whose messages go by this carrier."""
        settings = self._settings()
        if settings.carrier:
            return Receivers(frozenset({settings.hub.user}), among=True)
        return Receivers(settings.hub_users)

    async def _give_way(self) -> None:
        """Let jobs that wait at the broker become safe before news is sent, but not for long."""
        with anyio.move_on_after(_CROWDED_S):
            while self._crowded():  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(_GLANCE_S)

    def _all_sent(self) -> None:
        self.depth = 0
        if self._trouble:
            self._trouble = ""
            _log.info("status messages are sent again")

    async def _round(self, db: Db, words: Sequence[Word]) -> None:
        """Send some messages, those on different jobs at once."""
        await self._count(db, len(words))
        by_job: dict[tuple[int, int], list[Word]] = {}
        for word in words:
            # What is not about a job has no order.
            by_job.setdefault((word.job, 0 if word.job else word.id), []).append(word)
        sent: list[int] = []
        room = anyio.Semaphore(_AT_ONCE)
        async with anyio.create_task_group() as tasks:
            for some in by_job.values():
                if some[0].job not in self._stuck:
                    tasks.start_soon(self._story, db, some, sent, room)
        crash.point("edge.published")
        if sent:
            await self._writer.run(lambda db: records.sent(db, sent))
            crash.point("edge.sent")
        if not self._after and len(sent) < len(words):
            newest = records.newest(db, self._receivers())
            self._last, self._due = newest, anyio.current_time() + _PAUSE_S
            self._after = words[-1].id
        elif self._after:
            self._after = words[-1].id

    async def _story(
        self, db: Db, words: Sequence[Word], sent: list[int], room: anyio.Semaphore
    ) -> None:
        """Send the messages on one job, one after the other; the first that fails is the last."""
        for word in words:
            async with room:
                try:
                    await self._send(db, word)
                except errors.PilotageError as error:
                    self._complain(error)
                    self._leave(word)
                    return
                except Exception:  # noqa: BLE001 - one that cannot be said does not silence the others
                    if word.id not in self._odd:
                        self._odd.add(word.id)
                        _log.exception("message %d: this is a mistake in Pilotage", word.id)
                    self._leave(word)
                    return
            sent.append(word.id)

    def _leave(self, word: Word) -> None:
        """Have what is said of a job later wait for what could not be said now."""
        if word.job:
            self._stuck.add(word.job)

    async def _send(self, db: Db, word: Word) -> None:
        settings = self._settings()
        if word.body:
            await self.publish(word.topic, word.body.encode())
            return
        tale = records.tale(db, word.job, word.attempt)
        if tale is None:
            return  # the job was forgotten, and with it what there was to say
        streams = await anyio.to_thread.run_sync(tell.streams, word, tale)
        said = tell.status(word, tale, settings.site, streams)
        body = tell.body(
            said, tale.back.speech, lambda: records.message(db, word.job), tale.created
        )
        key = f"{settings.site}:{word.job}:{word.seq}"
        await self.publish(tell.topic(tale.back, settings), body, key)

    async def publish(self, topic: str, body: bytes, key: str = "") -> None:
        """Send to a topic, or by the site's own while the broker does not let us.

        Each try costs the connection, with all that is on the way over it.
        """
        own = self._settings().status_topic
        for where in dict.fromkeys((topic, own)):
            if anyio.current_time() < self._denied.get(where, 0.0):
                continue
            try:
                await self._bus.publish(where, body, key)
            except errors.Denied as error:
                self._complain(error)
                if len(self._denied) >= _MOST_DENIED:
                    self._denied.clear()
                self._denied[where] = anyio.current_time() + _DENIED_S
            else:
                return
        raise errors.Denied(f"the broker does not let us send to {topic!r} nor to {own!r}")

    async def _count(self, db: Db, seen: int) -> None:
        """Know how many wait; counting many takes a while, so it is not done each time."""
        if seen < _MOST and not self._after:
            self.depth = seen
            return
        if self._now() - self._counted < 1.0:
            return
        self.depth, self._counted = records.waiting(db, self._receivers()), self._now()
        if self.depth > _TOO_MANY:
            await self._writer.run(records.thin)

    def _complain(self, error: errors.PilotageError) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            _log.warning("status messages wait: %s", error)
