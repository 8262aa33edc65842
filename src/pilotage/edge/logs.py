"""Logs of jobs at sites with an agent: followed while they are read, complete at the end.

A site is asked for the output of a job, repeatedly and for a short time each; it sends pieces with
their offsets. A piece is kept if it continues the log. So pieces that arrive twice or out of order
change nothing, and a lost one is requested again. The store has the length of the log of each
attempt; a longer file holds what a crash has left there.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import itertools
import logging
import operator
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

import anyio.to_thread
import msgspec
from msgspec import UNSET, UnsetType

from pilotage.bus import wire
from pilotage.bus.fields import MOST_FOLLOWED
from pilotage.bus.model import Answer, Follow, FollowedJob, Log, Status
from pilotage.edge import records
from pilotage.edge.message import HubIdentity
from pilotage.edge.records import OVER
from pilotage.run import outcome as run_outcome
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.edge")
#: How long a site sends when it was asked, how often it is asked, and how soon after a gap.
_FOLLOW_S, _AGAIN_S, _SOON_S = 15.0, 5.0, 1.0
#: A site that says nothing is asked less and less often: it may be too old to understand that.
_RARELY_S, _UNHEARD = 60.0, 3
#: Attempts that are followed at once, and pieces that wait to be written.
_MOST, _MOST_WAITING = 200, 200

#: A job and the number of its attempt.
At = tuple[int, int]


class LogOffsets(msgspec.Struct, frozen=True):
    """The length of the log of an attempt."""

    #: The number of the attempt at the site.
    attempt: int = 0
    stdout: int = 0
    stderr: int = 0

    def of(self, attempt: int) -> LogOffsets:
        """Return how far it goes for an attempt at the site: each begins with nothing."""
        return self if attempt == self.attempt else LogOffsets(attempt)


class LogPiece(msgspec.Struct, frozen=True):
    """Bytes to be written to a stream, and their offset."""

    at: int
    data: bytes


def joined(has: int, at: int, data: bytes) -> LogPiece | None:
    """Return the new part of a piece; none if bytes before it are missing."""
    if at > has:
        return None
    return LogPiece(has, data[has - at :][: max(0, MOST_FOLLOWED - has)])


def ended(has: int, at: int | UnsetType, data: bytes) -> LogPiece:
    """Return the part of the end of a stream that completes its log."""
    if at is UNSET:
        # A site that was never asked for it, or an older one, sends the end alone.
        told = "\n[its end follows; what is missing before it is at the site]\n" if has else ""
        return LogPiece(has, told.encode() + data)
    if at <= has:
        return LogPiece(has, data[has - at :])
    line = "\n" if has else ""
    return LogPiece(has, f"{line}[{at - has} bytes are at the site only]\n".encode() + data)


class EdgeLogs:
    """The logs of all attempts at sites with an agent."""

    def __init__(
        self,
        reader: Db,
        writer: Writer,
        address: HubIdentity,
        folder: str,
        now: Callable[[], float],
    ) -> None:
        """Keep them with the attempts of the project, below `folder`."""
        self._reader, self._writer, self._address = reader, writer, address
        self._folder, self._now = folder, now
        #: When attempts were asked for, and those of which something is missing.
        self._asked: dict[At, float] = {}
        self._behind: set[At] = set()
        #: By site, how often it was asked since it last said something.
        self._unheard: dict[str, int] = {}
        self._waiting: deque[Log] = deque(maxlen=_MOST_WAITING)
        self._came = asyncio.Event()
        #: Held while files are written: an end must not be followed by a piece.
        self._writing = asyncio.Lock()
        self._ending: set[At] = set()

    # -- requests --------------------------------------------------------------------------------

    async def ask(self) -> None:
        """Ask sites for logs that are followed, if that is due."""
        now = self._now()
        rows = self._reader.rows("edge_followed_now", now=now, most=_MOST)
        known = {(row[0], row[1]) for row in rows}
        self._asked = {one: when for one, when in self._asked.items() if one in known}
        self._behind &= known
        bodies = {}
        for site, some in itertools.groupby(
            sorted(rows, key=operator.itemgetter(2)), key=operator.itemgetter(2)
        ):
            mine = [*some]
            if any(self._due(site, (row[0], row[1]), now) for row in mine):
                bodies[site] = self._question(site, mine)
                self._asked |= {(row[0], row[1]): now for row in mine}
                self._unheard[site] = self._unheard.get(site, 0) + 1
        if bodies:
            await self._writer.run(functools.partial(_put, bodies=bodies))

    def _due(self, site: str, one: At, now: float) -> bool:
        extra = max(0, self._unheard.get(site, 0) - _UNHEARD)
        pause = min(_RARELY_S, _AGAIN_S * 2.0 ** min(extra, 10))
        if one in self._behind and not extra:
            pause = _SOON_S
        return now - self._asked.get(one, 0.0) >= pause

    def _question(
        self, site: str, rows: Iterable[tuple[int, int, str, str, int, int, int]]
    ) -> bytes:
        jobs = tuple(
            FollowedJob(key=self._address.key(key), attempt=attempt, stdout=out, stderr=err)
            for _, _, _, key, attempt, out, err in rows
        )
        return wire.encode(Follow(site=site, seconds=_FOLLOW_S, jobs=jobs))

    # -- pieces ----------------------------------------------------------------------------------

    def take(self, pieces: Iterable[Log]) -> None:
        """Queue pieces for writing; if too many wait, the oldest are dropped and asked again."""
        self._waiting.extend(pieces)
        self._came.set()

    async def run(self) -> None:
        """Write pieces until cancelled."""
        while True:
            await self._came.wait()
            self._came.clear()
            async with self._writing:
                await self._write([self._waiting.popleft() for _ in range(len(self._waiting))])

    async def _write(self, pieces: list[Log]) -> None:
        grown: dict[At, LogOffsets] = {}
        troubles: dict[At, str] = {}
        for one in pieces:
            self._unheard.pop(one.site, None)
            key = self._address.attempt(one.key)
            row = self._reader.row("edge_log_has", key=key, now=self._now()) if key else None
            if row is None or row[2] != one.site or (row[0], row[1]) in self._ending:
                # It is not asked for, not of the current attempt, or over.
                continue
            at, before = (row[0], row[1]), LogOffsets(*row[3:])
            try:
                has = await anyio.to_thread.run_sync(self._grow, at, grown.get(at, before), one)
            except (OSError, ValueError) as error:
                troubles[at] = f"its log cannot be kept here: {error}"
            else:
                grown |= {at: has} if has != before else {}
        if grown or troubles:
            step = functools.partial(_note, grown=grown, troubles=troubles)
            await self._writer.run(step)

    def _grow(self, at: At, before: LogOffsets, one: Log) -> LogOffsets:
        """Write the new part of a piece; return the new length of the log."""
        if one.attempt < before.attempt:
            return before
        has = before.of(one.attempt)
        told = {"stdout": (one.stdout_at, one.stdout), "stderr": (one.stderr_at, one.stderr)}
        for stream, (start, coded) in told.items():
            piece = joined(getattr(has, stream), start, base64.b64decode(coded, validate=True))
            if piece is None:
                self._behind.add(at)
            elif piece.data:
                self._put(at, stream, piece)
                has = msgspec.structs.replace(has, **{stream: piece.at + len(piece.data)})
                self._behind.discard(at)
        return has

    def _put(self, at: At, stream: str, piece: LogPiece) -> None:
        run_outcome.put_output(self._folder, *at, stream, piece.at, piece.data, last=True)

    # -- the end ---------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def finished(self, words: Sequence[Status | Answer]) -> AsyncIterator[Mapping[At, str]]:
        """Complete the logs of attempts that end by these statuses, before those are stored.

        So readers of the end find the whole log. Yields the errors by attempt.
        """
        for one in words:
            # The site answers again.
            self._unheard.pop(one.site, None)
        last = [one for one in words if isinstance(one, Status) and one.state in OVER]
        ending = {
            at: (LogOffsets(row.log_attempt, row.stdout_size, row.stderr_size).of(one.attempt), one)
            for one in last
            if (one.stdout or one.stderr) and (row := self._current(one))
            for at in [(row.job, row.number)]
        }
        troubles: dict[At, str] = {}
        try:
            if ending:
                async with self._writing:
                    self._ending |= ending.keys()
                    for at, (has, one) in ending.items():
                        trouble = await anyio.to_thread.run_sync(self._complete, at, has, one)
                        troubles |= {at: trouble} if trouble else {}
            yield troubles
        finally:
            self._ending -= ending.keys()

    def _current(self, one: Status) -> records.RemoteAttempt | None:
        """Return the attempt that a site ends, if it is the current one of its job."""
        key = self._address.attempt(one.key)
        row = records.by_key(self._reader, key) if key else None
        if row is None or row.over or row.site != one.site or one.seq <= row.seq:
            return None
        current = self._reader.value("edge_attempt_current", job=row.job)
        return row if current == row.number else None

    def _complete(self, at: At, has: LogOffsets, one: Status) -> str:
        """Write the ends of both streams; return why that cannot be done."""
        told = {"stdout": (one.stdout_at, one.stdout), "stderr": (one.stderr_at, one.stderr)}
        try:
            for stream, (start, coded) in told.items():
                if coded:
                    data = base64.b64decode(coded, validate=True)
                    self._put(at, stream, ended(getattr(has, stream), start, data))
        except (OSError, ValueError) as error:
            _log.warning("job %d: its log cannot be kept here: %s", at[0], error)
            return f"its log cannot be kept here: {error}"
        return ""


def _put(db: Db, bodies: Mapping[str, bytes]) -> None:
    """Queue requests to sites; they replace earlier ones that were not sent."""
    for site, body in bodies.items():
        topic = f"control.{site}"
        db.run("edge_follow_drop", topic=topic)
        records.put(db, topic, body, kind="follow")


def _note(db: Db, grown: Mapping[At, LogOffsets], troubles: Mapping[At, str]) -> None:
    """Record how far logs go, and with jobs why their logs cannot be kept."""
    for (job, number), has in grown.items():
        db.run(
            "edge_log_grew", job=job, number=number, attempt=has.attempt, stdout=has.stdout,
            stderr=has.stderr,
        )  # fmt: skip
    for (job, number), words in troubles.items():
        records.say(db, job, number, words)
