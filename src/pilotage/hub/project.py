"""A project on disk, as commands and Python programs use it: everything here is durable at once.

A command writes to the store and pokes whoever runs the project; it needs no server.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

import msgspec

from pilotage.agent import FILE as AGENT
from pilotage.base import errors, text
from pilotage.base.clock import Clock, WallClock
from pilotage.base.owner import me
from pilotage.batch import records as sites
from pilotage.event import message, records
from pilotage.job import logs, moves
from pilotage.job import records as jobs
from pilotage.job.model import Attempt, Job, NewJob, State
from pilotage.project import settings
from pilotage.store import Db, connect

if TYPE_CHECKING:
    from pilotage.batch.wish import Wish
    from pilotage.flow.model import Flow
    from pilotage.rule.book import Diff
    from pilotage.rule.model import Rule
    from pilotage.rule.rulebook import Known, Loaded

_LOCK = "lock"
_POKE = "poke"
_READY = "ready"
_LOCK_TRIES = 20
_LOCK_PAUSE_S = 0.025


class Project:
    """A folder with rules, a store and the directories of jobs."""

    def __init__(self, root: Path, clock: Clock | None = None) -> None:
        """Open the project in `root`, and make its state folder if need be."""
        self.root = root.resolve()
        self.state = self.root / settings.STATE
        self.settings = settings.read(self.root)
        self.clock = clock or WallClock()
        _make_state(self.state)
        self.db = connect(self.state / "store.db")

    @classmethod
    def find(cls, start: Path | None = None) -> Project:
        """Open the project of a folder or of the nearest one above it."""
        here = (start or Path.cwd()).resolve()
        for folder in (here, *here.parents):
            if any((folder / name).exists() for name in (settings.FILE, settings.STATE, AGENT)):
                return cls(folder)
        message = f"there is no Pilotage project in {here} or above"
        raise errors.NoProject(message, hint="`pilotage init` makes one here")

    def close(self) -> None:
        """Let go of the store."""
        self.db.close()

    def __enter__(self) -> Self:
        """Use it in a `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the store."""
        self.close()

    # -- jobs ------------------------------------------------------------------------------------

    def submit(self, new: NewJob) -> int:
        """Queue a job; it is safe when this returns."""
        with self._change() as db:
            job = jobs.add(db, new, self.clock.now())
        if job is None:
            conflict = f"a job with the key {new.key!r} exists already"
            raise errors.Conflict(conflict, hint="the same work is never queued twice")
        return job

    def job(self, number: int) -> Job:
        """Read a job."""
        return jobs.get(self.db, number)

    def jobs(self, selection: jobs.Selection) -> list[Job]:
        """Read jobs."""
        return jobs.find(self.db, selection)

    def attempts(self, number: int) -> list[Attempt]:
        """Read the attempts of a job."""
        return jobs.attempts(self.db, number)

    def want_pilots(self, site: str, wish: Wish, count: int, pool: str) -> list[int]:
        """Ask for pilots at a site."""
        body = msgspec.json.encode(wish).decode()
        with self._change() as db:
            now = self.clock.now()
            return [
                int(db.value("pilot_want", name=site, site=site, pool=pool, wish=body, now=now))
                for _ in range(count)
            ]

    def ask_site(self, name: str, asked: str, why: str = "") -> None:
        """Ask something of a site: `drain`, or nothing any more."""
        with self._change() as db:
            sites.ask(db, name, asked, by=me(), why=why, now=self.clock.now())

    def follow(self, number: int) -> None:
        """Have the log of a job brought here for a while, if it is at a site with an agent."""
        now = self.clock.now()
        if logs.due(self.db, number, now):
            with self._change() as db:
                logs.follow(db, number, now)

    def cancel(self, numbers: Sequence[int]) -> dict[int, State]:
        """Call jobs off."""
        return self._each(numbers, moves.cancel)

    def hold(self, numbers: Sequence[int]) -> dict[int, State]:
        """Keep jobs from going on."""
        return self._each(numbers, moves.hold)

    def release(self, numbers: Sequence[int]) -> dict[int, State]:
        """Let held jobs go on."""
        return self._each(numbers, moves.release)

    def retry(self, numbers: Sequence[int]) -> dict[int, State]:
        """Try jobs again that ended badly."""
        from pilotage.flow.rerun import retry  # most commands have nothing to do with workflows

        return self._each(numbers, retry)

    def _each(self, numbers: Sequence[int], verb: Callable[..., State]) -> dict[int, State]:
        with self._change() as db:
            now = self.clock.now()
            return {number: verb(db, jobs.get(db, number), now=now) for number in numbers}

    def check_flow(self, flow: Flow) -> tuple[str, ...]:
        """Refuse a workflow whose sites will never take its steps; return which steps will wait."""
        from pilotage.status import sites as site_view  # most commands need no sites

        now, running = self.clock.now(), self.running()
        return tuple(
            site_view.check_flow(self.db, self.root, self.settings, flow, now, running=running)
        )

    # -- events ----------------------------------------------------------------------------------

    def emit(self, topic: str, data: Any = None, *, identity: str = "") -> int:  # noqa: ANN401
        """Send a message to the rules; the same identity twice is one event."""
        body = data if isinstance(data, bytes) else text.dump(data or {}).encode()
        return self.receive(topic, body, identity)

    def receive(self, topic: str, body: bytes, identity: str = "") -> int:
        """Store a message; it is safe when this returns."""
        with self._change() as db:
            return self.store_message(db, topic, body, identity)

    def store_message(self, db: Db, topic: str, body: bytes, identity: str) -> int:
        """Write a message in a transaction of the caller's."""
        message.check_topic(topic)
        identity = identity or secrets.token_hex(8)
        if (before := db.value("event_message", topic=topic, identity=identity)) is not None:
            return int(before)
        path = message.spool(self.state / "messages", body, secrets.token_hex(8))
        event = message.event(topic, body, path, self.clock.now(), identity)
        return records.add(db, [event], taken=False)

    # -- rules -----------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """The folder of rule files."""
        return self.root / self.settings.rules.folder

    def read_books(self) -> Loaded:
        """Read all books without changing anything."""
        from pilotage.rule import rulebook as books  # most commands need no rules

        return books.read(self.db, self.folder, self.root)

    def apply_books(self) -> tuple[Diff, Loaded]:
        """Read all books and put their rules in force."""
        from pilotage.rule import rulebook as books  # most commands need no rules

        with self._change() as db:
            loaded = books.read(db, self.folder, self.root)
            return books.apply(db, loaded, self.clock.now()), loaded

    def add_book(self, file: Path) -> Diff:
        """Put the rules of a file in force, or what it has become."""
        from pilotage.rule import rulebook as books  # most commands need no rules

        with self._change() as db:
            origin = books.add(db, file, self.root, self.clock.now())
            loaded = books.read(db, self.folder, self.root)
            if origin in loaded.failed:
                raise loaded.failed[origin]
            return books.apply(db, loaded, self.clock.now())

    def put_rules(self, book: str, rules: Iterable[Rule]) -> Diff:
        """Put the rules that a program made in force, in the place of those of the same book."""
        from pilotage.rule import rulebook as books  # most commands need no rules

        with self._change() as db:
            books.put(db, book, rules, self.clock.now())
            loaded = books.read(db, self.folder, self.root)
            if book in loaded.failed:
                raise loaded.failed[book]
            return books.apply(db, loaded, self.clock.now())

    def rules_in_force(self) -> bool:
        """Say whether whoever runs the project has taken up the last change of the rules."""
        from pilotage.rule import rulebook as books  # most commands need no rules

        return books.in_force(self.db)

    def drop_book(self, name: str) -> Diff:
        """Take the rules of an added book out of force."""
        from pilotage.rule import rulebook as books  # most commands need no rules

        with self._change() as db:
            known = {row[0] for row in db.rows("book_list")}
            full = name if name in known else str(Path(name).resolve())
            if full not in known:
                missing = f"no book {name!r} was added"
                raise errors.NotFound(
                    missing, hint="`pilotage rule ls` names the book of each rule"
                )
            db.run("book_drop", name=full)
            return books.apply(db, books.read(db, self.folder, self.root), self.clock.now())

    def rules(self) -> dict[str, Known]:
        """Read the rules in force."""
        from pilotage.rule import rulebook as books  # most commands need no rules

        return books.known(self.db)

    def enable(self, names: Sequence[str], *, on: bool = True) -> None:
        """Let rules take events, or not."""
        from pilotage.rule import rulebook as books  # most commands need no rules

        with self._change() as db:
            books.enable(db, names, on=on)

    # -- pilots ----------------------------------------------------------------------------------

    def ask_pilots(self, numbers: Sequence[int], asked: str) -> None:
        """Ask pilots to `drain` or to `stop`."""
        from pilotage.pilot import view  # most commands need no pilots

        with self._change() as db:
            view.ask(db, numbers, asked)

    # -- who runs it -----------------------------------------------------------------------------

    def running(self) -> bool:
        """Say whether a process runs this project now."""
        with open(self.state / _LOCK, "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def ready(self) -> bool:
        """Say whether a process runs this project and has seen all files that were there."""
        return self.running() and (self.state / _LOCK).read_text().endswith(_READY)

    @contextlib.contextmanager
    def alone(self) -> Iterator[Callable[[], None]]:
        """Be the one process that runs this project; call what is given when it is ready."""
        with open(self.state / _LOCK, "a+") as file:
            if not _locked(file):
                pid = (self.state / _LOCK).read_text().partition(" ")[0] or "?"
                message = f"{self.root} is run by process {pid} already"
                hint = "stop that one first, or work with it: every command does"
                raise errors.AlreadyRunning(message, hint=hint)

            def say(text: str) -> None:
                file.truncate(0)
                file.write(text)
                file.flush()

            say(str(os.getpid()))
            yield lambda: say(f"{os.getpid()} {_READY}")
            say("")

    def busy(self) -> bool:
        """Say whether jobs have not ended, but for held ones, or files are waited for to settle."""
        return bool(self.db.value("job_live", never="[]")) or bool(self.db.value("pending_next"))

    def poke(self) -> None:
        """Tell whoever runs the project that there is something new."""
        with contextlib.suppress(OSError):  # nobody listens: it will look when it starts
            pipe = os.open(self.poke_path, os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(pipe, b".")
            finally:
                os.close(pipe)

    @property
    def poke_path(self) -> Path:
        """The pipe by which the running process is poked; a pipe has no limit on its path."""
        return self.state / _POKE

    @contextlib.contextmanager
    def _change(self) -> Iterator[Db]:
        with self.db.transaction():
            yield self.db
        self.poke()


def _locked(file: TextIO) -> bool:
    """Lock a file; patiently, since whoever looks whether it is locked locks it for a moment."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_S)
        else:
            return True
    return False


def _make_state(state: Path) -> None:
    try:
        state.mkdir(mode=0o700, exist_ok=True)
        (state / "messages").mkdir(mode=0o700, exist_ok=True)
        if not (state / _POKE).exists():
            os.mkfifo(state / _POKE, 0o600)
    except OSError as error:
        message = f"cannot write to {state}: {error.strerror}"
        raise errors.StoreUnavailable(
            message, hint="choose a folder that you may write to"
        ) from error
