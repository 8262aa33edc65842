"""Output of running jobs, sent to a hub that follows it in pieces at a bounded rate.

Nothing is stored here: a lost piece is requested again, since each request of a hub says how much
of a stream it has.
"""

from __future__ import annotations

import base64
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import anyio
import anyio.to_thread

from pilotage.agent import outbox, records
from pilotage.agent.model import LiveOutput
from pilotage.agent.settings import Settings
from pilotage.base import errors
from pilotage.bus import wire
from pilotage.bus.fields import MOST_FOLLOWED, MOST_LOG
from pilotage.bus.model import FollowedJob, Log
from pilotage.job import logs
from pilotage.job.logs import Name
from pilotage.store import Db

_log = logging.getLogger("pilotage.edge")
_STREAMS: tuple[Name, Name] = ("stdout", "stderr")
#: Seconds between two rounds, in each of which a job sends at most one piece of each stream.
_PACE_S = 0.5
#: Bytes of all jobs in one round.
_MOST_ROUND = 1 << 19
#: Maximal bytes of one stream that the hub has not confirmed.
_WINDOW = 1 << 20
#: Jobs that are followed at once.
_MOST_JOBS = 200


@dataclass
class _Followed:
    """A job that a hub follows."""

    #: Until when, by the clock of the event loop.
    until: float
    #: The attempt that the bytes are of.
    attempt: int
    #: Bytes of each stream that the hub has confirmed, and bytes that were sent.
    had: dict[Name, int] = field(default_factory=lambda: dict.fromkeys(_STREAMS, 0))
    sent: dict[Name, int] = field(default_factory=lambda: dict.fromkeys(_STREAMS, 0))
    #: Whether it was answered since it was last asked for.
    answered: bool = False

    def ask(self, one: FollowedJob, until: float) -> None:
        """Record how far the hub has each stream."""
        self.until, self.answered = until, False
        sizes: dict[Name, int] = {"stdout": one.stdout, "stderr": one.stderr}
        for name, size in sizes.items():
            has = size if one.attempt == self.attempt else 0
            if has <= self.had[name]:
                # Nothing has arrived since it last asked: what was sent is lost.
                self.sent[name] = has
            self.had[name] = has
            self.sent[name] = max(self.sent[name], has)

    def begin(self, attempt: int) -> None:
        """Go on with another attempt, whose streams are new."""
        if attempt != self.attempt:
            self.attempt = attempt
            self.had, self.sent = dict.fromkeys(_STREAMS, 0), dict.fromkeys(_STREAMS, 0)


class Logs:
    """Sends the streams of jobs that hubs follow."""

    def __init__(
        self, publish: Callable[[str, bytes], Awaitable[None]], open_reader: Callable[[], Db],
        settings: Callable[[], Settings],
    ) -> None:  # fmt: skip
        """Prepare; `run` starts it."""
        self._publish, self._open_reader, self._settings = publish, open_reader, settings
        self._followed: dict[int, _Followed] = {}
        self._asked = anyio.Event()

    def follow(self, jobs: Mapping[int, FollowedJob], seconds: float) -> None:
        """Send the streams of jobs for some time."""
        until = anyio.current_time() + seconds
        for number, one in jobs.items():
            # If there are too many, the latest requests come first.
            known = self._followed.pop(number, None) or _Followed(until, one.attempt)
            known.ask(one, until)
            self._followed[number] = known
        for number in [*self._followed][:-_MOST_JOBS]:
            del self._followed[number]
        self._asked.set()

    async def run(self) -> None:
        """Send until cancelled."""
        with contextlib.closing(self._open_reader()) as db:
            while True:
                if not self._followed:
                    self._asked = anyio.Event()
                    await self._asked.wait()
                await self._round(db)
                await anyio.sleep(_PACE_S)

    async def _round(self, db: Db) -> None:
        """Send the next piece of each job, until they are many bytes."""
        room, now = _MOST_ROUND, anyio.current_time()
        for number, one in [*self._followed.items()]:
            writes = records.live_output(db, number) if one.until > now else None
            if writes is None:
                # It is over, and a status reports its end, or the request has expired.
                self._followed.pop(number, None)
                continue
            if room <= 0:
                return
            room -= await self._send(number, one, writes)
            if self._followed.pop(number, None) is one:
                # It comes last in the next round.
                self._followed[number] = one

    async def _send(self, number: int, one: _Followed, writes: LiveOutput) -> int:
        """Send the next piece of a job; return its size in bytes."""
        one.begin(writes.attempt)
        starts = dict(one.sent)
        pieces = await anyio.to_thread.run_sync(_read, writes.folder, starts, dict(one.had))
        if one.answered and not any(pieces.values()):
            return 0
        out, err = (base64.b64encode(pieces[name]).decode() for name in _STREAMS)
        said = Log(
            site=self._settings().site, job=number, key=writes.token, attempt=writes.attempt,
            stdout_at=starts["stdout"], stdout=out, stderr_at=starts["stderr"], stderr=err,
        )  # fmt: skip
        try:
            await self._publish(
                outbox.status_topic(writes.back, self._settings()), wire.encode(said)
            )
        except errors.PilotageError as error:
            _log.debug("the log of job %d waits: %s", number, error)
            return 0
        one.answered = True
        for name, piece in pieces.items():
            if one.sent[name] == starts[name]:
                one.sent[name] += len(piece)
        return sum(map(len, pieces.values()))


def _read(folder: str, starts: Mapping[Name, int], had: Mapping[Name, int]) -> dict[Name, bytes]:
    """Read what comes next of each stream, unless too much of it is on its way."""
    if not folder:
        return dict.fromkeys(_STREAMS, b"")
    return {
        name: logs.piece(logs.path(folder, name), at)[:MOST_LOG]
        if at - had[name] < _WINDOW and at < MOST_FOLLOWED
        else b""
        for name, at in starts.items()
    }
