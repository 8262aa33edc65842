"""Programs of an application that run before or after a job, on the agent's own host.

They get no shell, a clean environment, the folder of the job, and one hour of time and of CPU. Each
holds a lock while any of its processes lives: a later run, perhaps after the agent was killed, ends
all processes that still hold the lock, so that a program never runs twice at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, STDOUT

import anyio
import anyio.to_thread
from anyio.abc import Process

from pilotage.agent.app import bounded
from pilotage.agent.app.parser import CLEAN
from pilotage.base import errors, text, units

#: Seconds after which it is ended.
TIME_S = 3600.0
#: Bytes of its last line that are reported if it fails.
_TOLD = 500
#: How often processes that hold a lock are searched for, and the pause after each, in seconds.
_TRIES, _TRY_S = 50, 0.1


async def run(
    argv: Sequence[str], *, folder: str, env: Mapping[str, str], lock: Path, output: Path,
    seconds: float = TIME_S,
) -> None:  # fmt: skip
    """Run a program to its end; raise if it fails or takes too long. Cancelled, it is ended.

    What it writes is kept in `output`, which only its owner may read.
    """
    held = await _take(lock)
    try:
        process = await _start(argv, folder, env, held, output)
    finally:
        os.close(held)
    try:
        with anyio.move_on_after(seconds) as scope:
            await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(_end, process, lock)
            await process.aclose()
    name = os.path.basename(argv[0])
    if scope.cancelled_caught:
        raise errors.TimedOut(f"{name} did not end within {units.for_people(seconds)}")
    if process.returncode:
        said = await anyio.to_thread.run_sync(_last, output)
        raise errors.JobFailed(f"{name} {_how(process.returncode)}: {said}")


async def _start(
    argv: Sequence[str], folder: str, env: Mapping[str, str], held: int, output: Path
) -> Process:
    words = [
        sys.executable,
        "-I",
        "-S",
        bounded.__file__,
        f"cpu={TIME_S:.0f}",
        "core=0",
        "--",
        *argv,
    ]
    output.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    said = os.open(output, flags, 0o600)
    try:
        return await anyio.open_process(
            words, stdin=DEVNULL, stdout=said, stderr=STDOUT, cwd=folder, start_new_session=True,
            env={**CLEAN, **env}, pass_fds=[held],
        )  # fmt: skip
    finally:
        os.close(said)


async def _take(lock: Path) -> int:
    """Take a lock; end processes that an earlier run left and that hold it."""
    for _ in range(_TRIES):
        # Not in a thread: a task that is cancelled meanwhile would never release it.
        if (file := _try(lock)) is not None:
            return file
        await anyio.to_thread.run_sync(sweep, lock)
        await anyio.sleep(_TRY_S)
    raise errors.Unavailable(
        f"the processes that hold {lock} cannot be ended", hint="does a file system hang?"
    )


def _try(lock: Path) -> int | None:
    """Take a lock if it is free."""
    lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return file


def _end(process: Process, lock: Path) -> None:
    """End a program and all that it started, also what has left its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    sweep(lock)


def sweep(lock: Path) -> None:
    """End every process that has a file open."""
    try:
        facts = os.stat(lock)
    except FileNotFoundError:
        return
    for pid in _holders(facts):
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(pid)
            try:
                # Its number may be another's by now.
                if _holds(pid, facts):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)


def _holders(facts: os.stat_result) -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid() and _holds(int(name), facts):
            yield int(name)


def _holds(pid: int, facts: os.stat_result) -> bool:
    with contextlib.suppress(OSError):
        for file in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found = os.stat(f"/proc/{pid}/fd/{file}")
                if (found.st_dev, found.st_ino) == (facts.st_dev, facts.st_ino):
                    return True
    return False


def _how(status: int) -> str:
    if status < 0:
        return f"was ended by signal {-status}"
    return f"failed with status {status}"


def _last(output: Path) -> str:
    """Show the last line of what a program wrote, for people."""
    with output.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TOLD))
        words = file.read(_TOLD).decode("utf-8", "replace").strip()
    return text.show(words.rpartition("\n")[2]) or "it does not say why"
