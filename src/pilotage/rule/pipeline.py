"""From events to jobs: event sources, messages, timers, ends of jobs, and reloading of rules."""

from __future__ import annotations

import asyncio
import logging
import threading
from asyncio import wrap_future
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from starlette.applications import Starlette

from pilotage.base import crash, errors, text, units
from pilotage.base.clock import Clock
from pilotage.base.wakeup import Wakeup, patience
from pilotage.event import http, socket, timer
from pilotage.event import records as event_records
from pilotage.event.file.source import FileSource
from pilotage.event.model import Event, EventKind
from pilotage.event.records import StoredFiles
from pilotage.job import model, moves, records
from pilotage.project import folder, tokens
from pilotage.project import settings as config
from pilotage.project.folder import ProjectFolder
from pilotage.project.settings import Http, Tcp
from pilotage.rule import firing
from pilotage.rule import records as rulebook
from pilotage.rule.files import Diff
from pilotage.rule.intake import Intake
from pilotage.rule.model import JobPattern, MessagePattern, Rule, TimerPattern
from pilotage.rule.records import FlowReader
from pilotage.run.local import JobListener
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.event")
_rules_log = logging.getLogger("pilotage.rules")
#: Rule files are few and may be on any file system: polling is simpler than inotify.
_FOLDER_S = 0.5
#: Seconds between two tries to open a port.
_AGAIN_S = 5


class EventPipeline(JobListener):
    """Turns events into jobs, and follows starts and ends of jobs for the loop guard."""

    def __init__(
        self, project: ProjectFolder, writer: Writer, open_reader: Callable[[], Db],
        stories: Mapping[str, EndSource], on_new_jobs: Sequence[Callable[[], None]],
        read_flow: FlowReader,
    ) -> None:  # fmt: skip
        """Connect the parts; nothing happens before `begin`.

        Ends are read from `stories`; all of `on_new_jobs` are called whenever there may be new
        jobs, and `read_flow` reads workflows that rules start.
        """
        call_soon = asyncio.get_running_loop().call_soon_threadsafe
        now = project.clock
        self._project, self._writer, self._now = project, writer, now
        self._jobs, self._timing, self._ended, self._ports, self._settling, self._messages = (
            Wakeup(call_soon) for _ in range(6)
        )
        self._on_new_jobs = on_new_jobs
        self._lineage = firing.Lineage()
        self._intake = Intake(writer, open_reader(), now, self._lineage, self._jobs.set)
        self._reloader = RuleReloader(
            project, writer, self._intake, stories, self._wake_all, read_flow
        )
        self._reloader.load()
        index = self._intake.index
        self._files = FileSource(
            index.scope, index.kinds, StoredFiles(open_reader()), self._intake, now,
            config.options(project.settings, project.state), _log.warning,
        )  # fmt: skip
        self._timers = TimerTask(self._intake, writer, now, self._timing)
        self._ends = EndEvents(self._intake, writer, self._ended, stories, str(project.root))
        self.inbox = MessageInbox(project, writer, self._intake, self._messages)
        self.sources = (self._files, self._intake, self._ends)

    async def begin(self, tasks: TaskGroup) -> None:
        """Start to take events, those that were missed first."""
        for path, job, depth in self._writer.do(
            lambda db: db.rows("output_all", most=firing.MOST_OUTPUTS)
        ):
            self._lineage.outputs[text.load_path(path)] = (job, depth)
        for task in self._tasks():
            tasks.start_soon(task)
        await anyio.to_thread.run_sync(self._reloader.serve, self._files)
        tasks.start_soon(folder.listen, self._project.poke_path, self._poked)
        self._wake_all()

    def _tasks(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        now = self._now
        return [
            lambda: _watch(self._files, self._intake, self._writer),
            lambda: _follow(self._reloader.stale, self._reloader.refresh),
            lambda: self.inbox.take(self._reloader.refresh),
            self._wake,
            self._timers.run,
            self._ends.run,
            lambda: self.inbox.serve_ports(self._ports),
            lambda: _settle(self._intake, now, self._settling),
        ]

    # -- notifications --------------------------------------------------------------------------

    def started(self, claim: moves.Claim, binding: model.Binding, outputs: list[str]) -> None:
        """Tell the loop guard which job started."""
        runs = firing.RunningJob(claim.job, claim.depth, binding.path, self._now.now())
        self._lineage.started(claim.rule, runs, outputs)

    def writes(self, job: int, depth: int, outputs: list[str]) -> None:
        """Tell the loop guard which files a job will write."""
        self._lineage.writes(job, depth, outputs)

    def ended(self, rule: str, job: int) -> None:
        """Notify the loop guard, and the rules that wait for ends of jobs."""
        self._lineage.ended(rule, job, self._now.now())
        self._ends.idle = False
        self._ended.set()

    def wake_ends(self, _ended: object = None) -> None:
        """Wake the rules that wait for ends of jobs."""
        self._ends.idle = False
        self._ended.set()

    async def _wake(self) -> None:
        while True:
            await self._jobs.wait()
            self._look_for_jobs()
            self._settling.set()

    def _poked(self) -> None:
        self._look_for_jobs()
        self._wake_all()

    def _look_for_jobs(self) -> None:
        for tell in self._on_new_jobs:
            tell()

    def _wake_all(self) -> None:
        for wakeup in (self._timing, self._ended, self._ports, self._settling, self._messages):
            wakeup.set()


async def _watch(files: FileSource, intake: Intake, writer: Writer) -> None:
    """Run the file source in its thread; return when all its events are on disk."""

    def run() -> None:
        files.run()
        # An error of the last batch is raised here: no later batch would raise it.
        intake.flush()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, run)
        try:
            await anyio.sleep_forever()
        finally:
            # A store that cannot be written must not keep us from ending.
            writer.hurry()
            intake.close()
            files.stop()
            # A failed start must not wait for the first scan.
            files.ready.set()


async def _settle(intake: Intake, clock: Clock, wakeup: Wakeup) -> None:
    """Fire rules on files that have been left alone for long enough."""
    while True:
        await wakeup.wait(patience(intake.next_due, clock.now()))
        if intake.next_due is not None and intake.next_due <= clock.now():
            await anyio.to_thread.run_sync(intake.due)


async def _follow(stale: Callable[[], bool], refresh: Callable[[], None]) -> None:
    """Call `refresh` in a worker thread whenever the folder of rules is not what was read."""
    while True:
        await anyio.sleep(_FOLDER_S)
        if stale():
            await anyio.to_thread.run_sync(refresh)


class TimerTask:
    """Fires the rules that wait for points in time."""

    def __init__(self, intake: Intake, writer: Writer, clock: Clock, wakeup: Wakeup) -> None:
        """Set `wakeup` when the rules have changed."""
        self._intake = intake
        self._writer = writer
        self._clock = clock
        self._wakeup = wakeup

    async def run(self) -> None:
        """Fire timers until cancelled."""
        while True:
            soonest = None
            for rule in self._intake.rules.values():
                if isinstance(rule.pattern, TimerPattern):
                    due = await self._serve(rule, rule.pattern)
                    soonest = due if soonest is None else min(soonest, due)
            await self._wakeup.wait(patience(soonest, self._clock.now()))

    async def _serve(self, rule: Rule, pattern: TimerPattern) -> float:
        """Fire the ticks that are due; return when the next one is."""
        source, now = f"timer {rule.name}", self._clock.now()
        last = await self._writer.run(lambda db: _since(db, source, now))
        when = (pattern.every, pattern.cron, pattern.zone)
        ticks = timer.missed(*when, last, now, pattern.catch_up)
        if timer.next_tick(*when, last) <= now:
            events = [timer.tick(rule.name, at, now) for at in ticks]
            last = now

            def note(db: Db) -> None:
                event_records.advance(db, source, repr(now))

            await anyio.to_thread.run_sync(self._intake.take, events, note)
        return timer.next_tick(*when, last)


def _since(db: Db, source: str, now: float) -> float:
    """Return when a timer last fired; a new one begins now."""
    found = event_records.cursor(db, source)
    if found is None:
        event_records.advance(db, source, repr(now))
    return now if found is None else float(found)


class MessageInbox:
    """Accepts messages by HTTP and TCP; each is answered once it is on disk."""

    def __init__(
        self, project: ProjectFolder, writer: Writer, intake: Intake, messages: Wakeup
    ) -> None:
        """Set `messages` for every message that was stored."""
        self._project = project
        self._writer = writer
        self._intake = intake
        self._messages = messages
        self._open: dict[int, anyio.CancelScope] = {}

    async def accept(self, topic: str, body: bytes, identity: str) -> int:
        """Store a message; return the number of its event."""
        step = self._writer.submit(
            lambda db: self._project.store_message(db, topic, body, identity)
        )
        number = await wrap_future(step)
        self._messages.set()
        return number

    async def take(self, refresh: Callable[[], None]) -> None:
        """Turn stored messages into jobs, and reload rules, whenever woken."""
        while True:
            await self._messages.wait()
            while await anyio.to_thread.run_sync(self._intake.take_stored):
                pass
            await anyio.to_thread.run_sync(refresh)

    def app(self) -> Starlette:
        """Return the HTTP application that accepts messages."""
        settings = self._project.settings.http
        return http.app(self.accept, self._token(settings), units.size(settings.max_size))

    async def serve_ports(self, wakeup: Wakeup) -> None:
        """Open and close the TCP ports of rules, as the rules come and go."""
        tcp = self._project.settings.tcp
        token = self._token(tcp) if tcp.token_file else ""
        async with anyio.create_task_group() as tasks:
            while True:
                wanted = self._wanted()
                for port in self._open.keys() - wanted.keys():
                    self._open.pop(port).cancel()
                for port in wanted.keys() - self._open.keys():
                    self._open[port] = anyio.CancelScope()
                    tasks.start_soon(self._serve_port, port, wanted[port], token)
                await wakeup.wait()

    def _token(self, settings: Http | Tcp) -> str:
        if settings.token_file:
            return tokens.read(self._project.root / settings.token_file)
        return tokens.keep(self._project.state / "token")

    def _wanted(self) -> dict[int, str]:
        return {
            rule.pattern.port: rule.pattern.topics[0]
            for rule in self._intake.rules.values()
            if isinstance(rule.pattern, MessagePattern) and rule.pattern.port is not None
        }

    async def _serve_port(self, port: int, topic: str, token: str) -> None:
        with self._open[port]:
            while not await self._listen(port, topic, token):  # noqa: ASYNC110 - a port
                await anyio.sleep(_AGAIN_S)

    async def _listen(self, port: int, topic: str, token: str) -> bool:
        """Serve a port; a port in use by another program is logged and retried."""
        tcp = self._project.settings.tcp
        most = units.size(tcp.max_size)
        try:
            await socket.serve(self.accept, topic, port, token, most, tcp.host)
        except errors.Conflict as error:
            _log.error("%s; trying again every %d s", error, _AGAIN_S)
            return False
        return True


class RuleReloader:
    """Keeps the rules in force current; its methods block, so call them in a worker thread."""

    def __init__(
        self, project: ProjectFolder, writer: Writer, intake: Intake,
        stories: Mapping[str, EndSource], changed: Callable[[], None], read_flow: FlowReader,
    ) -> None:  # fmt: skip
        """Start with no rules; call `changed` when they have changed."""
        self._project = project
        self._writer = writer
        self._intake = intake
        self._stories = stories
        self._read_flow = read_flow
        self._changed = changed
        self._source: FileSource | None = None
        self._generation = -1
        self._fingerprint = ""
        #: Files of workflows that rules start.
        self._flows: frozenset[str] = frozenset()
        self._turn = threading.Lock()

    def load(self) -> None:
        """Load the rule files, before any source runs."""
        self._read_folder()
        self._swap()

    def serve(self, source: FileSource) -> None:
        """Use the file source once it is ready, and fire new rules on known files."""
        source.ready.wait()
        self._source = source
        self._fire_on_known_files()

    def stale(self) -> bool:
        """Return whether the rules folder has changed since it was read."""
        watch = self._project.settings.rules.watch
        return watch and self._look() != self._fingerprint

    def refresh(self) -> None:
        """Apply changes of the rules folder and of the rules in the store."""
        with self._turn:
            self._refresh()

    def _refresh(self) -> None:
        if self._project.settings.rules.watch:
            self._read_folder()
        if self._source and self._writer.do(rulebook.generation) != self._generation:
            self._swap()
            # New ground is watched and scanned before the call returns; what it finds is matched
            # by the new rules, and the key of a job keeps anything from being made twice.
            self._source.reshape(self._intake.index.scope, self._intake.index.kinds)
            self._fire_on_known_files()
            self._changed()

    def _read_folder(self) -> None:
        now = self._look()
        if now == self._fingerprint:
            return
        loaded, diff = self._writer.do(self._apply)
        # A workflow that was not watched until now may have changed since it was read: once more.
        self._fingerprint = now if self._flows == loaded.flows else ""
        self._flows = loaded.flows
        for name, error in loaded.failed.items():
            hint = f" ({error.hint})" if error.hint else ""
            _rules_log.error("%s: its rules stay as they were: %s%s", name, error, hint)
        if summary := rulebook.summary(diff):
            _rules_log.info("rules: %s", summary)

    def _look(self) -> str:
        return rulebook.fingerprint(self._project.folder, self._flows)

    def _apply(self, db: Db) -> tuple[rulebook.LoadedRuleFiles, Diff]:
        project = self._project
        loaded = rulebook.read(db, project.folder, project.root, self._read_flow)
        return loaded, rulebook.apply(db, loaded, self._project.clock.now())

    def _swap(self) -> None:
        def step(db: Db) -> tuple[int, dict[str, rulebook.StoredRule], dict[str, int]]:
            found = rulebook.known(db)
            specs = {name: records.intern(db, one.rule.spec) for name, one in found.items()}
            live = (one.rule.pattern for one in found.values() if one.enabled)
            wanted = any(isinstance(one, JobPattern) for one in live)
            start_ends(db, self._stories, wanted=wanted)
            return rulebook.generation(db), found, specs

        self._generation, found, specs = self._writer.do(step)
        rules = [one.rule for one in found.values()]
        self._intake.swap(rules, specs, str(self._project.root))

    def _fire_on_known_files(self) -> None:
        """Fire new or changed rules on the files that were already known."""
        known = self._writer.do(rulebook.known)
        new = [name for name, one in known.items() if not one.settled and one.enabled]
        if new:
            self._intake.flush()
            self._intake.fire_on_known_files(new)
            _rules_log.debug("rules fired on known files: %s", text.dump(new))
        self._writer.do(lambda db: rulebook.take_effect(db, self._generation))


#: A line of a story by its number, and the event that it is, if it is one.
Line = tuple[int, Event | None]
#: What came out of a job that is a workflow: the store, the job, its state, the project's folder.
OfFlow = Callable[[Db, int, str, str], dict[str, Any]]


class EndSource(NamedTuple):
    """A journal in the store that has ends of jobs or flows."""

    #: Read the lines after a number, for a project in a folder.
    read: Callable[[Db, int, str], list[Line]]
    #: The query for the number of its newest line.
    newest: str


class EndEvents:
    """Turns the ends of jobs, and of tasks of workflows, into events, in their order."""

    def __init__(
        self,
        intake: Intake,
        writer: Writer,
        bell: Wakeup,
        stories: Mapping[str, EndSource],
        root: str,
    ) -> None:
        """Follow `stories`; set `bell` when jobs ended or the rules have changed."""
        self._intake = intake
        self._stories = stories
        self._root = root
        self._writer = writer
        self._bell = bell
        #: Whether every end so far has been taken.
        self.idle = True

    async def run(self) -> None:
        """Follow the journal until cancelled."""
        while True:
            await self._bell.wait()
            while self._intake.follows_ends and await self._step():
                pass
            self.idle = True

    async def _step(self) -> bool:
        taken = [await self._follow(name, story) for name, story in self._stories.items()]
        return any(taken)

    async def _follow(self, source: str, story: EndSource) -> bool:
        """Handle some ends of one journal; return whether there were any."""

        def some(db: Db) -> list[Line]:
            after = event_records.cursor(db, source)
            return story.read(db, int(after), self._root) if after else []

        found = await self._writer.run(some)
        if not found:
            return False
        events = [event for _, event in found if event is not None]
        last = found[-1][0]

        def note(db: Db) -> None:
            if event_records.cursor(db, source):  # else the last rule that waits has gone meanwhile
                event_records.advance(db, source, str(last))
            crash.point("jobevent.before_commit")

        await anyio.to_thread.run_sync(self._intake.take, events, note)
        return True


def start_ends(db: Db, stories: Mapping[str, EndSource], *, wanted: bool) -> None:
    """Begin with the ends from now on, where no rule has waited for ends before.

    The journal is followed from where it was left, also after a restart, while some rule waits.
    """
    for source, story in stories.items():
        if not wanted:
            event_records.advance(db, source, "")
        elif not event_records.cursor(db, source):
            event_records.advance(db, source, str(db.value(story.newest)))


def job_ends(of_flow: OfFlow) -> EndSource:
    """Return the story of jobs; `of_flow` adds what came out of jobs that are workflows."""

    def read(db: Db, after: int, root: str) -> list[Line]:
        return _ended_jobs(db, after, root, of_flow)

    return EndSource(read, "journal_last")


def _ended_jobs(db: Db, after: int, root: str, of_flow: OfFlow) -> list[Line]:
    found: list[Line] = []
    for seq, time, job, attempt, state, reason, name, rule, depth, step in db.rows(
        "journal_ends", after=after
    ):
        if step:
            # Its workflow reports it, once its outputs have been checked.
            found.append((seq, None))
            continue
        facts = {
            "id": job, "name": name, "rule": rule, "state": state, "reason": reason,
            "attempt": attempt, "depth": depth,
            "outputs": [row[0] for row in db.rows("output_of", job=job)],
        }  # fmt: skip
        facts |= of_flow(db, job, state, root)
        found.append((seq, Event(EventKind.JOB_ENDED, name, time, str(seq), data=facts, cause=job)))
    return found
