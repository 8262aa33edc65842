"""A starter process that runs payloads, and what it leaves if it dies."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import signal
import socket
import sys
import time
import uuid
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

import anyio
import anyio.to_thread
import msgspec

from pilotage.base import errors, text
from pilotage.payload.starter import process
from pilotage.run import outcome
from pilotage.run.model import Ending, EndReason, Launch, Report

_log = logging.getLogger(__name__)
_PROGRAM = Path(__file__).parents[1] / "payload" / "starter"
_BULK = 1 << 18
_READY_SECONDS = 60.0
_LEAVE_SECONDS = 30.0


class Starter:
    """A starter process; iterate over it for the reports of its payloads, in bulks.

    Whatever was given to `start` comes back as exactly one `Ending`, also when the starter dies.
    """

    def __init__(self, channel: socket.socket, pid: int, lock: Path) -> None:
        #: The file that the starter holds a lock on while it lives; see `alive`.
        self.lock = lock
        #: Whether payloads go on when the context is left; else they are stopped.
        self.linger = False
        self._channel = channel
        self._pid = pid
        self._inward = b""
        self._outward = bytearray()
        self._turn = anyio.Lock(fast_acquire=True)
        self._held: dict[str, str] = {}
        self._over = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        state_dir: Path,
        *,
        slots: int = 0,
        linger: bool = False,
        grace: float = 10.0,
        devices: Sequence[str] = (),
    ) -> AsyncIterator[Self]:
        """Run a starter; on leaving, stop its payloads or let them go on by themselves.

        With `slots`, no more payloads run at once and further ones wait in the starter, which
        saves the way to and fro between the end of one and the start of the next. `devices` are
        the GPUs to lend to payloads.
        The starter leaves `exit.json` in the directory of every payload whose ending was not
        acknowledged.
        """
        lock = _new_lock(state_dir)
        ours, theirs = socket.socketpair()
        with theirs:
            pid = _spawn(theirs, lock, slots, devices)
        ours.setblocking(False)
        starter = cls(ours, pid, lock)
        starter.linger = linger
        try:
            await starter._greet()
            yield starter
        finally:
            with anyio.CancelScope(shield=True):
                await starter._leave(grace)

    async def start(self, launches: Sequence[Launch]) -> None:
        """Order payloads to be started."""
        if self._over:
            raise errors.Unavailable("the starter has died", hint="open another")
        self._held.update((launch.key, launch.dir) for launch in launches)
        for launch in launches:
            self._say({"op": "start", **msgspec.structs.asdict(launch)})
        await self._flush()

    async def stop(self, key: str, message: str, grace: float | None = None) -> None:
        """Ask a payload to end, and have it killed after the grace time."""
        self._say({"op": "stop", "key": key, "message": message, "grace": grace})
        await self._flush()

    def acknowledge(self, keys: Iterable[str]) -> None:
        """Acknowledge endings that are on disk; sent with the next message."""
        self._say({"op": "ack", "keys": list(keys)})

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Report]:
        while not self._over:
            messages = await self._receive()
            if messages is None:
                if lost := await self._lose():
                    return lost
            elif reports := [outcome.read_report(message) for message in messages]:
                for one in reports:
                    if isinstance(one, Ending):
                        self._held.pop(one.key, None)
                return reports
        raise StopAsyncIteration

    def _say(self, message: dict[str, Any]) -> None:
        self._outward += text.dump(message).encode() + b"\n"

    async def _flush(self) -> None:
        """Send all that was said; what a dead starter misses shows in its last reports."""
        async with self._turn:
            while self._outward:
                try:
                    del self._outward[: self._channel.send(self._outward)]
                except BlockingIOError:
                    await anyio.wait_writable(self._channel)
                except ConnectionError:
                    self._outward.clear()

    async def _receive(self) -> list[bytes] | None:
        """Wait for the next bulk of messages, or for the death of the starter."""
        await self._flush()
        await anyio.wait_readable(self._channel)
        try:
            data = self._channel.recv(_BULK)
        except ConnectionError:
            data = b""
        *lines, self._inward = (self._inward + data).split(b"\n")
        return lines if data else None

    async def _greet(self) -> None:
        """Wait until the starter holds its lock, so that it is not taken for dead."""
        with anyio.move_on_after(_READY_SECONDS):
            if await self._receive():
                return
        # Not collected yet, so the number means no other.
        os.kill(self._pid, signal.SIGKILL)
        raise errors.Unavailable(f"the starter does not start: {_last_words(self.lock)}")

    async def _leave(self, grace: float) -> None:
        """Disconnect from the starter; it writes down what was not acknowledged."""
        if not self.linger:
            for key in list(self._held):
                await self.stop(key, "stopped together with its runner", grace)
            with anyio.move_on_after(grace + _LEAVE_SECONDS if self._held else 0):
                async for _ in self:
                    if not self._held:
                        break
        await self._flush()
        self._channel.close()
        with anyio.move_on_after(0 if self.linger else _LEAVE_SECONDS):
            await self._death()
            self._collect()

    async def _lose(self) -> list[Report]:
        """Kill the payloads of a dead starter, and return their endings."""
        await self._death()
        # Until it is collected, the number of the dead starter can mean no other session.
        await anyio.to_thread.run_sync(end_orphans, set(self._held), self._pid)
        self._collect()
        self._over = True
        _log.error("a starter died with %d payloads: %s", len(self._held), _last_words(self.lock))
        found = {key: evidence(dir_) for key, dir_ in self._held.items()}
        reports: list[Report] = [
            one if one and one.key == key else _lost(key) for key, one in found.items()
        ]
        self._held.clear()
        return reports

    async def _death(self) -> None:
        """Wait until the starter is dead, without collecting it."""
        pause = 0.001
        while not _dead(self._pid):
            await anyio.sleep(pause)
            pause = min(2 * pause, 0.1)

    def _collect(self) -> None:
        """Let the number of the dead starter go."""
        with suppress(ChildProcessError):
            os.waitpid(self._pid, os.WNOHANG)


def _lost(key: str) -> Ending:
    message = "its starter died, so its end was not observed"
    return Ending(key, time.time(), None, None, EndReason.LOST, message, None)


def _new_lock(state_dir: Path) -> Path:
    folder = state_dir.absolute() / "starters"
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob("*.lock.d"):
        # Folders of workers, after a power cut.
        if not alive(left.with_suffix("")):
            shutil.rmtree(left, ignore_errors=True)
    return folder / f"{uuid.uuid4().hex}.lock"


def _last_words(lock: Path) -> str:
    """Return the last output of a dead starter; remove its lock and the folders of its workers."""
    shutil.rmtree(f"{lock}.d", ignore_errors=True)
    try:
        words = lock.read_text(errors="replace")
        lock.unlink()
    except FileNotFoundError:
        words = ""
    return words[-2000:].strip() or "it said nothing"


def _dead(pid: int) -> bool:
    """Return whether a child has ended, without collecting it."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _spawn(channel: socket.socket, lock: Path, slots: int, devices: Sequence[str]) -> int:
    """Start the starter, with the channel as its input; what it says goes into the lock file."""
    flags = ["-I", "-S", "-X", f"utf8={sys.flags.utf8_mode}"]
    options = ["--socket", "0", "--lock", str(lock), "--slots", str(slots)]
    options += ["--devices", ",".join(devices)]
    return os.posix_spawn(
        sys.executable,
        [sys.executable, *flags, str(_PROGRAM), *options],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, channel.fileno(), 0),
            (os.POSIX_SPAWN_OPEN, 1, lock, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsigmask=(),
        setsigdef={signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD},
    )


_KILL_SECONDS = 10.0


def evidence(directory: str | Path) -> Ending | None:
    """Read how the payload of an attempt directory ended, if its starter had to write it down."""
    try:
        data = Path(directory, "exit.json").read_bytes()
        return outcome.read_evidence(data)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except (ValueError, msgspec.ValidationError):
        # A payload wrote a file of this name itself; its starter will put evidence in its place.
        return None


def alive(lock: Path) -> bool:
    """Return whether the starter that holds this lock lives."""
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        # Shared, so that two concurrent checks do not take each other for the starter.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def end_orphans(keys: Collection[str], session: int | None = None) -> int:
    """Kill the processes of these payloads; return how many there were.

    A payload whose starter lives is no orphan, so that of another project with the same key is
    safe. All of `session` is killed too: it is the number of a starter that has died but is not
    collected. This waits until those it killed are gone.
    """
    killed: set[int] = set()
    quiet = 0
    deadline = time.monotonic() + _KILL_SECONDS
    # Twice, since a process that was about to begin shows its environment a moment later.
    while quiet < 2 and time.monotonic() < deadline:
        found = _orphans(keys, session)
        for pid, group in found.items():
            with suppress(ProcessLookupError, PermissionError):
                if group != os.getpgrp():
                    os.killpg(group, signal.SIGKILL)
                os.kill(pid, signal.SIGKILL)
        killed.update(found)
        quiet = 0 if found else quiet + 1
        time.sleep(0.02)
    return len(killed)


def signal_adopted(key: str, lock: str, number: int) -> None:
    """Send a signal to a payload whose starter lives but obeys a process that is gone."""
    for pid, row in process.table().items():
        if process.key_of(pid) == key and process.environ(pid).get(process.STARTER) == lock:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(row.group, number)


def _orphans(keys: Collection[str], session: int | None) -> dict[int, int]:
    """Find the processes of these payloads, with their groups."""
    return {
        pid: row.group
        for pid, row in process.table().items()
        if row.state not in "ZX" and (row.session == session or _orphaned(pid, keys))
    }


def _orphaned(pid: int, keys: Collection[str]) -> bool:
    if process.key_of(pid) not in keys:
        return False
    marks = process.environ(pid)
    return process.STARTER not in marks or not alive(Path(marks[process.STARTER]))
