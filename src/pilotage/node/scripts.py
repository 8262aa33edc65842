"""Run a program of the hub, the site or a group once, with a time limit."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_WORDS = 2000
_GLANCE_S = 0.01
_CREATE = os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True)
class Outcome:
    """How a program ended."""

    ok: bool
    #: The last of what it said, or why it did not run.
    words: str
    #: What it wrote to standard output and to file descriptor 3.
    output: str = ""
    extra: str = ""
    seconds: float = 0.0


def run(
    argv: Sequence[str], env: Mapping[str, str], folder: str, name: str, timeout: float
) -> Outcome:
    """Run a program to its end; all of its group is killed when its time is over."""
    base = os.path.join(folder, name)
    begun = time.monotonic()
    try:
        pid = os.posix_spawnp(
            argv[0],
            list(argv),
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, f"{base}.out", _CREATE, 0o600),
                (os.POSIX_SPAWN_OPEN, 2, f"{base}.err", _CREATE, 0o600),
                (os.POSIX_SPAWN_OPEN, 3, f"{base}.env", _CREATE, 0o600),
            ],
            setpgroup=0,
            setsigmask=(),
            setsigdef={signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE},
        )
    except (OSError, ValueError, IndexError) as error:
        return Outcome(ok=False, words=f"cannot start {shlex.join(argv)}: {error}")
    code = _wait(pid, begun + timeout)
    seconds = time.monotonic() - begun
    output, complaint, extra = (_read(f"{base}.{end}") for end in ("out", "err", "env"))
    words = (output + complaint)[-_WORDS:].strip()
    if code is None:
        words = f"stopped after its {timeout:g} s; {words}"
    elif code != 0 and not words:
        words = f"ended with {code}"
    return Outcome(code == 0, words, output, extra, seconds)


def interpreter(source: str) -> list[str]:
    """Read the first line of a script, so that it runs also where files cannot be executed."""
    first = source.split("\n", 1)[0]
    if not first.startswith("#!"):
        return ["/bin/sh"]
    try:
        return shlex.split(first[2:]) or ["/bin/sh"]
    except ValueError:
        return ["/bin/sh"]


def _wait(pid: int, deadline: float) -> int | None:
    """Wait for a program; nothing is returned of one that took too long."""
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            _kill(pid)
            return os.waitstatus_to_exitcode(status)
        time.sleep(_GLANCE_S)
    _kill(pid)
    os.waitpid(pid, 0)
    return None


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _read(path: str) -> str:
    """Read the end of a file, which may be of any length."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - (1 << 20)))
            return file.read().decode(sys.getfilesystemencoding(), "replace")
    except OSError:
        return ""
