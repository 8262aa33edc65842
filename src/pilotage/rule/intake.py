"""Turn events into stored jobs: one transaction for a batch of events and all their jobs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec

from pilotage.base import crash, errors, text
from pilotage.base.clock import Clock
from pilotage.event import content, records
from pilotage.event.file.model import UNFINISHED, FileBatch
from pilotage.event.model import Event, EventKind, FileVersion
from pilotage.rule import firing
from pilotage.rule.model import FilePattern, JobPattern, Rule
from pilotage.rule.pattern import Index
from pilotage.store import Db, Writer

#: Batches that may be on their way to disk at once.
_IN_FLIGHT = 4
#: Files that a new rule is shown at once.
_KNOWN_AT_ONCE = 1000
_GLANCE_S = 0.5


class Plan:
    """The changes of one batch of events, before they are written."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.events: list[list[Any]] = []
        self.jobs: list[firing.Row] = []
        self.pending: list[tuple[str, str, float, Event]] = []
        self.gathered: list[firing.SetMember] = []


class Intake:
    """Matches events against the rules and makes their jobs, exactly once."""

    def __init__(
        self, writer: Writer, reader: Db, clock: Clock, lineage: firing.Lineage,
        wake: Callable[[], None],
    ) -> None:  # fmt: skip
        """Begin with no rules; `wake` is called, from any thread, when there are new jobs."""
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._wake = wake
        self._lock = threading.RLock()
        self._room = threading.BoundedSemaphore(_IN_FLIGHT)
        self._index = Index(())
        self._ready: dict[str, firing.PreparedRule] = {}
        #: Whether a rule waits for ends of jobs.
        self.follows_ends = False
        self._guard = firing.LoopGuard(lineage)
        self._counting = threading.Lock()
        self._in_flight = 0
        self._failure: BaseException | None = None
        self._closed = False
        #: When the next file that settles is due; None if none does.
        self.next_due: float | None = None

    # -- what the sources call -------------------------------------------------------------------

    def put(self, batch: FileBatch) -> None:
        """Take a batch of the file source: its events and what became known of files."""
        plan = Plan()
        with self._lock:
            for event in batch.events:
                self._files(plan, event)
        crash.point("event.matched")
        seen = text.dump([
            (text.store_path(row[0]), text.store_path(row[1]), int(row[2]), *row[3:])
            for row in batch.seen
        ])  # fmt: skip
        gone = text.dump([(text.store_path(row[0]), text.store_path(row[1])) for row in batch.gone])

        def note(db: Db) -> None:
            for tree in batch.tree_gone:
                db.run("file_tree_gone", dir=text.store_path(tree))
            if batch.gone:
                db.run("file_gone", rows=gone)
            if batch.seen:
                db.run("file_seen", rows=seen)

        self._send(plan, note)

    def flush(self) -> None:
        """Return when all events so far are on disk; raise the error of a failed write."""
        self._writer.do(lambda _: None)
        if self._failure is not None:
            raise self._failure

    def take(self, events: Sequence[Event], note: Callable[[Db], None]) -> None:
        """Take events of another source, together with the step that moves its cursor on."""
        plan = Plan()
        with self._lock:
            for event in events:
                self._others(plan, event, None)
        self._send(plan, note)

    def take_stored(self) -> int:
        """Handle the messages that wait in the store; return their number."""
        plan = Plan()
        with self._lock:
            waiting = records.waiting(self._reader)
            for stored in waiting:
                self._others(plan, stored.event, stored.id)
        if waiting:
            numbers = [stored.id for stored in waiting]
            self._send(plan, lambda db: records.taken(db, numbers), numbered=True).result()
        return len(waiting)

    def due(self) -> None:
        """Fire what has been left alone for long enough."""
        now = self._clock.now()
        plan = Plan()
        done: list[tuple[str, str, float]] = []
        with self._lock:
            for name, path, due, body in self._reader.rows("pending_due", now=now):
                event = msgspec.convert(text.load(body), Event)
                done.append((name, path, due))
                self._settled(plan, name, event, now)

        def note(db: Db) -> None:
            for name, path, due in done:
                db.run("pending_drop", rule=name, path=path, due=due)

        self._send(plan, note).result()
        self._refresh_due()

    # -- rules -----------------------------------------------------------------------------------

    @property
    def index(self) -> Index:
        """The rules that are in force, as an index of files."""
        return self._index

    @property
    def rules(self) -> dict[str, Rule]:
        """The rules that are in force."""
        return {name: ready.rule for name, ready in self._ready.items()}

    @property
    def idle(self) -> bool:
        """Whether all events so far are on disk."""
        return self._in_flight == 0 and self.next_due is None

    def swap(self, rules: Iterable[Rule], specs: dict[str, int], base: str) -> None:
        """Replace the rules in force."""
        live = [rule for rule in rules if rule.enabled]
        ready = {rule.name: firing.PreparedRule(rule, specs[rule.name], base) for rule in live}
        self.follows_ends = any(isinstance(rule.pattern, JobPattern) for rule in live)
        with self._lock:
            self._index = Index(live)
            self._ready = ready
            for rule in live:
                if rule.rate and not self._guard.pacer.knows(rule.name):
                    past = self._reader.rows("job_pace", rule=rule.name, most=rule.rate.count)
                    places = (row[0] for row in reversed(past))
                    self._guard.pacer.remember(rule.name, rule.rate, places)
        self._refresh_due()

    def fire_on_known_files(self, names: Sequence[str]) -> None:
        """Fire new rules on the files that are already known.

        In pieces, since there may be millions; a crash in between begins again, and makes nothing
        twice.
        """
        with self._lock:
            new = Index([self._ready[name].rule for name in names if name in self._ready])
            roots = [text.store_path(root) for root in new.scope.roots]
            rows = [row for root in roots for row in self._reader.rows("file_below", dir=root)]
        for at in range(0, len(rows), _KNOWN_AT_ONCE):
            plan = Plan()
            with self._lock:
                for row in rows[at : at + _KNOWN_AT_ONCE]:
                    self._known(plan, new, row)
                self._drop_known(plan)
            self._send(plan, lambda _: None).result()
        written = text.dump(names)
        self._send(Plan(), lambda db: db.run("rule_settled", names=written)).result()

    def _drop_known(self, plan: Plan) -> None:
        """Leave out jobs that exist already, with their events: a scan may have come first."""
        keys = text.dump([row[0] for row in plan.jobs])
        known = {row[0] for row in self._reader.rows("job_keys", keys=keys)}
        fresh = [row for row in plan.jobs if row[0] not in known]
        places = {old: new for new, old in enumerate(sorted({row[firing.EVENT] for row in fresh}))}
        plan.events = [plan.events[old] for old in places]
        for row in fresh:
            row[firing.EVENT] = places[row[firing.EVENT]]
        plan.jobs = fresh

    # -- how ------------------------------------------------------------------------------------

    def _files(self, plan: Plan, event: Event) -> None:
        directory, _, name = event.subject.rpartition("/")
        for rule, groups in self._index.find(directory, name):
            self._file(plan, rule, event, groups)

    def _file(self, plan: Plan, rule: Rule, event: Event, groups: dict[str, str]) -> None:
        pattern = rule.pattern
        if not isinstance(pattern, FilePattern) or event.kind not in pattern.events:
            return
        now = self._clock.now()
        if firing.unfit(pattern, event, now):
            return
        if (due := firing.wait_until(pattern, event, now)) and _still_there(event):
            plan.pending.append((rule.name, event.subject, due, event))
            return
        self._route(plan, rule, event, groups, now)

    def _route(
        self, plan: Plan, rule: Rule, event: Event, groups: dict[str, str], now: float
    ) -> None:
        pattern = rule.pattern
        if isinstance(pattern, FilePattern):
            if rule.sha256 or pattern.version == "content":
                event = _hashed(event, as_version=pattern.version == "content")
            if pattern.gather:
                ready = self._ready[rule.name]
                plan.gathered.append(firing.arrival(ready, pattern.gather, event, groups))
                return
        self._fire(plan, rule, event, groups, now, None)

    def _fire(
        self, plan: Plan, rule: Rule, event: Event, groups: dict[str, str], now: float,
        number: int | None,
    ) -> None:  # fmt: skip
        context = self._guard.context(self._reader, rule, event, now)
        if number is None:
            number = len(plan.events)
            plan.events.append(records.row(event, taken=True))
        ready = self._ready[rule.name]
        plan.jobs.extend(firing.rows(ready, event, groups, number, context))

    def _complete(self, db: Db, one: firing.SetMember) -> firing.FiringContext:
        """Return how a complete set of files fires; called in the writer's thread."""
        with self._lock:
            return self._guard.context(db, one.ready.rule, one.event, self._clock.now())

    def _others(self, plan: Plan, event: Event, number: int | None) -> None:
        for rule, groups in self._index.others(event):
            self._fire(plan, rule, event, groups, self._clock.now(), number)

    def _settled(self, plan: Plan, name: str, event: Event, now: float) -> None:
        directory, _, entry = event.subject.rpartition("/")
        for rule, groups in self._index.find(directory, entry):
            if rule.name != name or not isinstance(rule.pattern, FilePattern):
                continue
            found = _stat(event.subject)
            if found is None:
                return
            if str(found[0]) != event.version:
                event = _changed(event, found)
                due = now + max(rule.pattern.settle, rule.pattern.min_age)
                plan.pending.append((name, event.subject, due, event))
            else:
                self._route(plan, rule, event, groups, now)

    def _known(self, plan: Plan, new: Index, row: tuple[Any, ...]) -> None:
        if row[5] == UNFINISHED:
            return
        directory, name = text.load_path(row[0]), text.load_path(row[1])
        kind = EventKind.DIR_EXISTING if row[2] else EventKind.FILE_EXISTING
        version = str(FileVersion(*row[3:]))
        path = f"{directory.rstrip('/')}/{name}"
        event = Event(kind, path, self._clock.now(), version, size=row[4], mtime=row[5] / 1e9)
        for rule, groups in new.find(directory, name):
            if rule.name in self._ready:  # else it was removed meanwhile
                self._file(plan, rule, event, groups)

    def _send(
        self, plan: Plan, note: Callable[[Db], Any], *, numbered: bool = False
    ) -> Future[int]:
        """Write a plan; `numbered` if its jobs name events by their number in the store."""
        events, jobs, now = text.dump(plan.events), firing.encode(plan.jobs), self._clock.now()

        def write(db: Db) -> int:
            before = int(db.value("job_last"))
            first = int(db.value("event_last")) + 1
            note(db)
            if plan.events:
                db.run("event_add", first=first, rows=events)
            if jobs:
                firing.add(db, jobs, event=0 if numbered else first, now=now)
            for name, path, due, event in plan.pending:
                stored = text.store_path(path)
                db.run("pending_put", rule=name, path=stored, due=due, event=text.dump(event))
            for arrival in plan.gathered:
                firing.note(db, arrival, lambda one: self._complete(db, one))
            made = int(db.value("job_last")) - before
            if made:
                db.run("rule_hits", after=before)
            crash.point("intake.before_commit")
            return made

        self._enter()
        with self._counting:
            self._in_flight += 1
        future = self._writer.submit(write)
        future.add_done_callback(lambda done: self._written(plan, done))
        return future

    def _enter(self) -> None:
        """Wait for room; raise the error of an earlier batch that could not be written."""
        while not self._room.acquire(timeout=_GLANCE_S):
            if self._closed:
                message = "the project stops while the store cannot be written"
                raise errors.StoreUnavailable(message, hint="the next start finds what is missing")
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Stop waiting for a store that cannot be written."""
        self._closed = True

    def _written(self, plan: Plan, done: Future[int]) -> None:
        self._failure = self._failure or done.exception()
        with self._counting:
            self._in_flight -= 1
        self._room.release()
        crash.point("intake.after_commit")
        if plan.pending:
            soonest = min(due for _, _, due, _ in plan.pending)
            with self._counting:
                if self.next_due is None or soonest < self.next_due:
                    self.next_due = soonest
        if plan.pending or (done.exception() is None and done.result()):
            self._wake()

    def _refresh_due(self) -> None:
        # Together: what is committed after the look must not be forgotten by what was seen.
        with self._lock, self._counting:
            self.next_due = self._reader.value("pending_next")


def _still_there(event: Event) -> bool:
    return event.kind not in {
        EventKind.FILE_DELETED,
        EventKind.FILE_MOVED_FROM,
        EventKind.DIR_DELETED,
    }


def _stat(path: str) -> tuple[FileVersion, float] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return FileVersion(found.st_ino, found.st_size, found.st_mtime_ns), found.st_mtime


def _changed(event: Event, found: tuple[FileVersion, float]) -> Event:
    return msgspec.structs.replace(event, version=str(found[0]), size=found[0].size, mtime=found[1])


def _hashed(event: Event, *, as_version: bool) -> Event:
    digest = content.sha256(event.subject)
    if digest is None:
        return event
    data = event.data | {"sha256": digest}
    version = f"sha256-{digest}" if as_version else event.version
    return msgspec.structs.replace(event, version=version, data=data)
