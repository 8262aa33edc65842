"""The loop of the file source: kernel records, due checks, and requests of other threads."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from pilotage.base import crash
from pilotage.base.clock import Clock
from pilotage.event.file.bits import EXISTED, MADE
from pilotage.event.file.complete import CompletenessGate
from pilotage.event.file.live import Live
from pilotage.event.file.model import KnownFiles, Options, Sink, WatchScope, split, within
from pilotage.event.file.outbox import FULL, Outbox
from pilotage.event.file.queue import Chunk, Inbox, InotifyQueue, WakeCall
from pilotage.event.file.survey import Survey, Visit
from pilotage.event.file.watches import Watches
from pilotage.event.model import EventKind


def outermost(roots: tuple[str, ...]) -> list[str]:
    """Return the roots that are not below others."""
    kept: list[str] = []
    for root in sorted(set(roots)):
        if not any(within(root, top) for top in kept):
            kept.append(root)
    return kept


@dataclass(eq=False)
class Roots:
    """The roots, and which directory was found at each."""

    _known: KnownFiles
    _outbox: Outbox
    _watches: Watches
    _survey: Survey
    _paths: list[str] = field(default_factory=list, init=False)
    _found: dict[str, tuple[int, int] | None] = field(default_factory=dict, init=False)

    def __contains__(self, path: str) -> bool:
        return path in self._found

    def reshape(self, roots: tuple[str, ...]) -> None:
        """Take other roots; let go of what is not below them any more."""
        self._paths = outermost(roots)
        for path in sorted([*self._watches.polled, *self._watches.tree.by_path]):
            kept = any(within(path, root) for root in self._paths)
            if not kept or not self._survey.enters(path):
                self._watches.drop(path)
                self._outbox.gone(*split(path))
                self._outbox.tree_gone(path)

    def forget(self) -> None:
        """Scan all at the next time."""
        self._found.clear()

    def scan(self, after_each: Callable[[], None]) -> bool:
        """Scan the roots that came, went or were replaced; tell whether to do so again at once."""
        visits: list[Visit] = []
        for root in self._paths:
            now = _identity(root)
            if root in self._found and self._found[root] == now and self._held(root):
                continue
            if not visits:
                self._outbox.flush()
            # A root that was known to be missing was made under our eyes.
            how = MADE if root in self._found and self._found[root] is None else EXISTED
            self._found[root] = now
            directory, name = split(root)
            row = self._known.listing(directory).get(name)
            visits.append(Visit(path=root, row=row, how=how, top=True))
        if visits:
            self._survey.scan(visits, after_each)
            self._outbox.send()
            for visit in visits:
                if not self._held(visit.path):
                    # It vanished before it was watched: what comes there next is new.
                    self._found[visit.path] = None
        return self._await()

    def _held(self, root: str) -> bool:
        """Return whether a root, if it exists, is watched.

        One that was deleted and made again may be the same directory by its numbers.
        """
        if self._found[root] is None:
            return True
        return root in self._watches.tree.by_path or root in self._watches.polled

    def _await(self) -> bool:
        """Watch for missing roots; tell whether one was made before its watch was set."""
        missing = [root for root in self._paths if self._found[root] is None]
        self._watches.await_roots(missing)
        return any(_identity(root) is not None for root in missing)


def _identity(path: str) -> tuple[int, int] | None:
    """Return which directory is at a path; none if there is none."""
    try:
        now = os.stat(path)
    except OSError:
        return None
    return (now.st_dev, now.st_ino) if stat.S_ISDIR(now.st_mode) else None


#: Seconds between two looks at whether the roots are still the same directories: nothing tells of
#: a mount over a root, nor of a move of what is above it.
HEARTBEAT = 1.0
#: So much said during a scan is remembered, if the kernel has nothing to say meanwhile.
REMEMBERED = 50_000

_OVERFLOW = "the kernel dropped file events (queue overflow): looking through all directories"


class FileSource:
    """Watches directories and puts what happens in them."""

    def __init__(
        self,
        scope: WatchScope,
        kinds: frozenset[EventKind],
        known: KnownFiles,
        sink: Sink,
        clock: Clock,
        options: Options | None = None,
        warnings: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Wire the parts; nothing is opened before `run`."""
        self._options = options or Options()
        self._shape = (scope, kinds)
        self._known = known
        self._outbox = Outbox(sink, clock, kinds)
        self.warnings = warnings
        #: Set when the watches are set and the first scan is done.
        self.ready = threading.Event()
        self._inbox: Inbox = SimpleQueue()
        self._started = threading.Event()
        self._stopped = threading.Event()
        self._ended = threading.Event()
        self._queue: InotifyQueue | None = None
        self._turned = 0.0
        self._warned: set[str] = set()

    @property
    def idle(self) -> bool:
        """Whether all that happened so far was put, and no file is waited for to be complete."""
        waits = (self._gate.due(), self._live.due()) if self.ready.is_set() else (0.0,)
        return not any(at is not None for at in waits) and self._inbox.empty() and self._idle()

    def run(self) -> None:
        """Watch until `stop`; errors of the sink come out of here."""
        self._started.set()
        self._queue = self._open()
        try:
            self._build()
            if self._queue is not None:
                self._queue.start()
            self._scan_roots()
            self.ready.set()
            while not self._stopped.is_set():
                self._round()
        finally:
            self._ended.set()
            self._answer_all()
            if self._queue is not None:
                self._queue.close()

    def stop(self) -> None:
        """End `run` soon."""
        self._stopped.set()
        self._inbox.put(WakeCall("wake"))

    def reshape(self, scope: WatchScope, kinds: frozenset[EventKind]) -> None:
        """Change the scope; return when new directories are watched and scanned."""
        self._shape = (scope, kinds)
        if self._started.is_set():
            self._ask("reshape")

    def rescan(self) -> None:
        """Compare everything with what is known; return when that is done."""
        if self._started.is_set():
            self._ask("rescan")

    def _ask(self, what: str) -> None:
        call = WakeCall(what)
        self._inbox.put(call)
        while not call.done.wait(0.1) and not self._ended.is_set():
            pass

    def _open(self) -> InotifyQueue | None:
        if self._options.mode == "poll":
            return None
        try:
            return InotifyQueue(self._inbox)
        except OSError as error:
            self.warnings(
                f"inotify cannot be used ({error.strerror}): directories are polled instead;"
                " raise the limit with `sysctl fs.inotify.max_user_instances=1024`"
            )
            return None

    def _build(self) -> None:
        scope, kinds = self._shape
        mode = self._options.mode
        self._outbox.reshape(kinds)
        self._gate = CompletenessGate(self._outbox, self._options.settle, self._idle)
        self._watches = Watches(self._queue, kinds, mode, self._warn)
        self._survey = Survey(
            self._known, self._outbox, self._gate, self._watches, self._options.skip, self._warn
        )
        self._survey.scope = scope
        self._live = Live(self._survey, self._outbox, self._gate, self._watches, self._warn)
        self._roots = Roots(self._known, self._outbox, self._watches, self._survey)
        self._roots.reshape(scope.roots)
        self._heartbeat = self._poll_at = time.monotonic()

    def _warn(self, text: str) -> None:
        """Warn once of what may be found repeatedly."""
        if text not in self._warned:
            self._warned.add(text)
            self.warnings(text)

    def _round(self) -> None:
        """Wait for something to do, and do it."""
        try:
            item = self._inbox.get(timeout=self._patience())
        except Empty:
            pass
        else:
            if isinstance(item, Chunk):
                self._take(item)
            else:
                self._answer(item)
        now = time.monotonic()
        due = self._live.due()
        if due is not None and due <= now:
            self._live.settle()
        self._gate.look()
        self._outbox.send()
        if self._live.roots_changed or now >= self._heartbeat:
            self._beat(now)
        if self._watches.polled and now >= self._poll_at:
            self._poll()

    def _patience(self) -> float:
        """Return for how long nothing is due."""
        times = [self._heartbeat, self._live.due(), self._gate.due()]
        if self._watches.polled:
            times.append(self._poll_at)
        first = min(at for at in times if at is not None)
        return max(0.0, first - time.monotonic())

    def _take(self, chunk: Chunk | None) -> None:
        """Take chunks until there are none or a batch is full."""
        size, since = 0, 0.0
        while chunk is not None:
            crash.point("event.read")
            position = 0
            while position < len(chunk.data):
                position, overflowed = self._live.gather(chunk.data, position)
                if overflowed:
                    self._overflow()
            size, since = size + len(chunk.data), chunk.since
            chunk = self._next_chunk() if self._live.waiting() < FULL else None
        self._live.settle()
        if self._queue is not None:
            self._queue.taken(size)
        if since > self._turned:
            self._outbox.turn()
            self._turned = time.monotonic()

    def _next_chunk(self) -> Chunk | None:
        try:
            item = self._inbox.get_nowait()
        except Empty:
            return None
        if isinstance(item, Chunk):
            return item
        self._live.settle()
        self._answer(item)
        return None

    def _overflow(self) -> None:
        self._live.settle()
        self.warnings(_OVERFLOW)
        self._roots.forget()
        self._scan_roots()

    def _scan_roots(self) -> None:
        self._live.roots_changed |= self._roots.scan(self._breathe)

    def _beat(self, now: float) -> None:
        self._heartbeat = now + HEARTBEAT
        self._live.roots_changed = False
        self._scan_roots()
        if self._idle():
            self._outbox.forget()

    def _idle(self) -> bool:
        return self._queue is None or self._queue.idle()

    def _breathe(self) -> None:
        """Keep the memory of what was said short during a long scan."""
        if self._outbox.remembered() > REMEMBERED and self._idle():
            self._outbox.forget()

    def _poll(self) -> None:
        self._outbox.flush()
        visits: list[Visit] = []
        for path, still in self._watches.polled.items():
            directory, name = split(path)
            row = self._known.listing(directory).get(name)
            visits.append(
                Visit(path=path, row=row, top=path in self._roots, watch=False, still=still)
            )
        self._survey.scan(visits, self._breathe)
        self._outbox.send()
        self._poll_at = time.monotonic() + self._options.poll_interval

    def _answer(self, call: WakeCall) -> None:
        if call.what == "reshape":
            self._reshape()
        elif call.what == "rescan":
            self._roots.forget()
            self._scan_roots()
        call.done.set()

    def _answer_all(self) -> None:
        while True:
            try:
                item = self._inbox.get_nowait()
            except Empty:
                return
            if isinstance(item, WakeCall):
                item.done.set()

    def _reshape(self) -> None:
        scope, kinds = self._shape
        self._outbox.reshape(kinds)
        self._watches.reshape(kinds)
        self._survey.scope = scope
        self._roots.reshape(scope.roots)
        self._roots.forget()
        self._scan_roots()
