"""A project on disk: its folder, its settings, its store, and the one process that runs it.

Services take it; a command adds to it what people do to projects (`pilotage.hub.project`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self, TextIO

import anyio

from pilotage.base import errors
from pilotage.base.clock import Clock, WallClock
from pilotage.event import message, records
from pilotage.project import settings
from pilotage.store import Db, connect

_LOCK = "lock"
_POKE = "poke"
_READY = "ready"
_LOCK_TRIES = 20
_LOCK_PAUSE_S = 0.025


class ProjectFolder:
    """A folder with settings, rules, a store and the directories of jobs."""

    def __init__(self, root: Path, clock: Clock | None = None) -> None:
        """Open the project in `root`, and make its state folder if need be."""
        self.root = root.resolve()
        self.state = self.root / settings.STATE
        self.settings = settings.read(self.root)
        self.clock = clock or WallClock()
        _make_state(self.state)
        self.db = connect(self.state / "store.db")

    @classmethod
    def find(cls, start: Path | None = None) -> Self:
        """Open the project of a folder or of the nearest one above it."""
        here = (start or Path.cwd()).resolve()
        for folder in (here, *here.parents):
            if any(
                (folder / name).exists()
                for name in (settings.FILE, settings.STATE, settings.AGENT_FILE)
            ):
                return cls(folder)
        message = f"there is no Pilotage project in {here} or above"
        raise errors.NoProject(message, hint="`pilotage init` makes one here")

    def close(self) -> None:
        """Close the store."""
        self.db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        """The folder of rule files."""
        return self.root / self.settings.rules.folder

    def store_message(self, db: Db, topic: str, body: bytes, identity: str) -> int:
        """Write a message in a transaction of the caller's."""
        message.check_topic(topic)
        identity = identity or secrets.token_hex(8)
        if (before := db.value("event_message", topic=topic, identity=identity)) is not None:
            return int(before)
        path = message.spool(self.state / "messages", body, secrets.token_hex(8))
        event = message.event(topic, body, path, self.clock.now(), identity)
        return records.add(db, [event], taken=False)

    # -- who runs it -----------------------------------------------------------------------------

    def running(self) -> bool:
        """Return whether a process runs this project now."""
        with open(self.state / _LOCK, "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def ready(self) -> bool:
        """Return whether a process runs this project and has seen all files that were there."""
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
        """Return whether there are live jobs, held ones excepted, or files that still settle."""
        return bool(self.db.value("job_live", never="[]")) or bool(self.db.value("pending_next"))

    def poke(self) -> None:
        """Wake the process that runs the project: the store has changed."""
        with contextlib.suppress(OSError):  # not running: it reads the store when it starts
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
    def change(self) -> Iterator[Db]:
        """Change the store in one transaction, then tell the process that runs the project."""
        with self.db.transaction():
            yield self.db
        self.poke()


def _locked(file: TextIO) -> bool:
    """Lock a file, with retries: a check of the lock holds it for a moment."""
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


async def listen(pipe: Path, heard: Callable[[], None]) -> None:
    """Call `heard` for each poke of another process, until cancelled."""
    # Opened for writing too: a pipe whose last writer left would otherwise read as ended for ever.
    end = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            await anyio.wait_readable(end)
            os.read(end, 65536)
            heard()
    finally:
        os.close(end)
