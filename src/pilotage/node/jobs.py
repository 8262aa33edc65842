"""Jobs that the pilot was given: their logs, their ends, and what the hub has acknowledged."""

from __future__ import annotations

import base64
import contextlib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import durable, frame


class Results:
    """A folder of ends; each is there whole or not at all."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self._folder = folder
        self._kept: set[str] = set()

    def keep(self, ends: dict[str, str]) -> None:
        """Write ends down, and return when they are on disk."""
        fresh = {key: text for key, text in ends.items() if key not in self._kept}
        for key, text in fresh.items():
            target = self._name(key)
            durable.fill(f"{target}.part", text.encode("utf-8", "replace"))
            os.rename(f"{target}.part", target)
        if fresh:
            durable.sync(self._folder)
        self._kept.update(fresh)

    def drop(self, key: str) -> None:
        """Forget an end that the hub has."""
        if key in self._kept:
            self._kept.discard(key)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._name(key))

    def _name(self, key: str) -> str:
        return os.path.join(self._folder, f"{key.replace('/', '_')}.json")


#: Bytes that go with the report of the end rather than before it, at most.
INLINE = 1 << 14


class Tail:
    """One file that a payload writes, as the hub sees it.

    What the hub gets is a text of its own: the whole file, or its head, a line that says how much
    is left out, and its tail. Offsets are those of that text.
    """

    def __init__(self, path: str, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._head = limit // 2
        self._size = 0
        self._note = b""
        self._over = False
        #: Up to where it was sent, and up to where the hub is known to have it.
        self.sent = 0
        self.safe = 0
        #: Up to where it was ever sent: the hub may have that, whether or not it is known to.
        self._reached = 0
        #: Where that part begins which goes with the report of the end.
        self.last = 0

    def look(self) -> bool:
        """Return whether there is something to send."""
        if not self._over:
            try:
                found = os.stat(self._path, follow_symlinks=False)
            except OSError:
                return False
            self._size = found.st_size if stat.S_ISREG(found.st_mode) else 0
        return self.sent < self._until()

    def finish(self) -> None:
        """Fix what the hub will get, now that the payload writes no more."""
        self.look()
        self._over = True
        if self._size > self._limit:
            left_out = self._size - self._limit
            self._note = f"\n[... {left_out} bytes are left out here ...]\n".encode()
        self.last = max(self._reached, self._length() - INLINE)

    def take(self, count: int) -> bytes:
        """Read the next bytes to send."""
        data = self._read(self.sent, min(count, self._until() - self.sent))
        self.sent += len(data)
        self._reached = max(self._reached, self.sent)
        return data

    def rest(self) -> bytes:
        """Read the part that goes with the report of the end."""
        return self._read(self.last, self._length() - self.last)

    def rewind(self) -> None:
        """Begin again where the hub is known to have it."""
        self.sent = self.safe

    def _length(self) -> int:
        return min(self._size, self._limit) + len(self._note)

    def _until(self) -> int:
        return self.last if self._over else min(self._size, self._head)

    def _read(self, at: int, count: int) -> bytes:
        """Read of the text that the hub gets."""
        if count <= 0:
            return b""
        if not self._note or at < self._head:
            end = self._head if self._note else self._size
            first = self._pread(at, min(count, end - at))
            return first + self._read(at + len(first), count - len(first)) if first else b""
        after = self._head + len(self._note)
        note = self._note[at - self._head : at - self._head + count] if at < after else b""
        skipped = self._size - self._limit - len(self._note)
        return note + self._pread(at + len(note) + skipped, count - len(note))

    def _pread(self, at: int, count: int) -> bytes:
        """Read of the file, never of what a payload may have put in its place."""
        if count <= 0:
            return b""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.pread(fd, count, at) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
        finally:
            os.close(fd)


#: Attempts that are over and must not begin again, as many as are remembered.
_REMEMBERED = 20_000
#: Bytes of ends in one message, and of one result, at most.
_MESSAGE = 4 << 20
_RESULT = 8 << 20
_LOG = 1 << 18
_STREAMS = ("stdout", "stderr")


@dataclass
class HeldAttempt:
    """An attempt that was given to this pilot."""

    key: str
    folder: str
    cwd: str
    outputs: dict[str, str]
    tails: tuple[Tail, Tail]
    #: Cores that it has.
    cpus: int = 1
    #: The folder that stands for the project's; empty if it runs in that.
    top: str = ""


@dataclass
class EndedAttempt:
    """An attempt that is over, until the hub has acknowledged it."""

    held: HeldAttempt
    #: When it ended, on the pilot's clock.
    since: float
    #: JSON without what it wrote, and without the last brace.
    told: str
    #: JSON of what the function returned; empty if there is none.
    result: str

    @property
    def behind(self) -> bool:
        """Return whether something that it wrote must be sent first."""
        return any(tail.sent < tail.last for tail in self.held.tails)

    def text(self) -> str:
        """Write the report as JSON."""
        parts = [self.told]
        for name, tail in zip(_STREAMS, self.held.tails):
            if rest := tail.rest():
                parts.append(f',"{name}":"{base64.b64encode(rest).decode()}"')
        if self.result:
            parts.append(f',"result":{self.result}')
        return "".join([*parts, "}"])


@dataclass
class Flight:
    """A message to the hub that has not been answered."""

    keys: list[str]
    started: dict[str, int]
    #: How far the hub will have what payloads wrote.
    marks: list[tuple[Tail, int]] = field(default_factory=list)


class PilotJobs:
    """The attempts of this pilot; no attempt begins twice."""

    def __init__(self, log_limit: int) -> None:
        self.held: dict[str, HeldAttempt] = {}
        self.ended: dict[str, EndedAttempt] = {}
        self._limit = log_limit
        #: Starts that the hub has not heard of.
        self.started: dict[str, int] = {}
        self._flights: dict[int, Flight] = {}
        self._flying: set[str] = set()
        self._over: dict[str, None] = {}
        self._touched: set[Tail] = set()

    def take(self, launch: Mapping[str, Any]) -> bool:
        """Accept an attempt; an old one is refused."""
        key = launch["key"]
        if key in self.held or key in self.ended or key in self._over:
            return False
        folder = launch["dir"]
        out, err = (Tail(os.path.join(folder, name), self._limit) for name in _STREAMS)
        outputs = launch.get("outputs") or {}
        cpus = int(launch.get("cpus") or 1)
        top = (launch.get("data") or {}).get("folder", "")
        self.held[key] = HeldAttempt(key, folder, launch["cwd"], outputs, (out, err), cpus, top)
        return True

    def start(self, key: str, pid: int) -> None:
        """Note that an attempt runs."""
        if key in self.held:
            self.started[key] = pid

    def end(self, report: Mapping[str, Any], now: float) -> None:
        """Note how an attempt ended; only the first report of it counts."""
        held = self.held.pop(report["key"], None)
        if held is None:
            return
        self.started.pop(held.key, None)
        facts = {name: value for name, value in report.items() if name not in {"op", "result"}}
        result = report.get("result") or ""
        if (size := len(result.encode("utf-8", "replace"))) > _RESULT:
            message = f"its return value is too long to be sent: {size} bytes"
            facts, result = {**facts, "exit": 1, "message": message}, ""
        if facts["reason"] == "exited":
            facts["missing"] = [
                _named(held, at) for at in held.outputs.values() if _lacks(held, at)
            ]
        for tail in held.tails:
            tail.finish()
        self.ended[held.key] = EndedAttempt(held, now, frame.text(facts)[:-1], result)

    def news(self) -> bool:
        """Return whether an end can be reported."""
        return any(key not in self._flying and not one.behind for key, one in self.ended.items())

    def report(self, n: int) -> str:
        """Write the fields that tell the hub what is new, and note that they are on their way."""
        texts: list[str] = []
        flight = Flight([], self.started, [(tail, tail.sent) for tail in self._touched])
        size = 0
        for key, one in self.ended.items():
            if key in self._flying or one.behind:
                continue
            text = one.text()
            size += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
            if texts and size > _MESSAGE:
                break
            texts.append(text)
            flight.keys.append(key)
        self.started = {}
        self._touched = set()
        self._flying.update(flight.keys)
        self._flights[n] = flight
        started = frame.text([[key, pid] for key, pid in flight.started.items()])
        return f'"ended":[{",".join(texts)}],"started":{started}'

    @property
    def unanswered(self) -> list[Flight]:
        """Return what is on its way."""
        return list(self._flights.values())

    def answered(self, n: int) -> list[EndedAttempt]:
        """Forget what the hub has acknowledged, and return it."""
        flight = self._flights.pop(n, None)
        if flight is None:
            return []
        for tail, sent in flight.marks:
            tail.safe = max(tail.safe, sent)
        self._flying.difference_update(flight.keys)
        done = [self.ended.pop(key) for key in flight.keys]
        for one in done:
            self._over[one.held.key] = None
        while len(self._over) > _REMEMBERED:
            del self._over[next(iter(self._over))]
        return done

    def cut(self) -> None:
        """Begin again with all that was on its way when the connection broke."""
        for flight in self._flights.values():
            still = {key: pid for key, pid in flight.started.items() if key in self.held}
            self.started = {**still, **self.started}
        self._flights.clear()
        self._flying.clear()
        self._touched.clear()
        for held in self._all():
            for tail in held.tails:
                tail.rewind()

    def logs(self, *, running: bool) -> str:
        """Write the next message with what a payload wrote; empty if there is nothing to send."""
        for held in self._all() if running else [one.held for one in self.ended.values()]:
            for name, tail in zip(_STREAMS, held.tails):
                at = tail.sent
                if tail.look() and (data := tail.take(_LOG)):
                    self._touched.add(tail)
                    body = {"op": "log", "key": held.key, "stream": name, "at": at}
                    return frame.text({**body, "data": base64.b64encode(data).decode()})
        return ""

    def _all(self) -> Iterable[HeldAttempt]:
        return [*self.held.values(), *(one.held for one in self.ended.values())]


def _lacks(held: HeldAttempt, path: str) -> bool:
    return not os.path.exists(os.path.join(held.cwd, path))


def _named(held: HeldAttempt, path: str) -> str:
    """Name an output as its job does, whatever bytes it has."""
    name = path[len(held.top) + 1 :] if held.top and path.startswith(f"{held.top}/") else path
    return name.encode(errors="backslashreplace").decode()
