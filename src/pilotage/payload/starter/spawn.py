"""Turn an order into a process."""

from __future__ import annotations

import errno
import os
import resource
import signal
from typing import Any

from . import boxed
from .crash import point
from .process import KEY, STARTER

_RESERVED = frozenset({"", ".", "..", "stdout", "stderr", "exit.json"})
_RESETTABLE = frozenset(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_LIMITS = {
    "cpu_seconds": resource.RLIMIT_CPU,
    "file_size": resource.RLIMIT_FSIZE,
    "open_files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
}
_CPU_SLACK_SECONDS = 5
_OURS = dict(os.environb)


class RefusedError(Exception):
    """A payload that cannot be started."""


class ClaimedError(RefusedError):
    """An attempt whose directory is not ours, so its evidence is another's to write."""


def begin(order: dict[str, Any], place: bytes, cwd: bytes, lock: bytes) -> int:
    """Claim the attempt directory, fill it and start the process."""
    unknown = set(order["limits"]) - {*_LIMITS, "disk"}
    if unknown:
        raise RefusedError(f"unknown limits {sorted(unknown)}")
    claim(place)
    point("starter.claimed")
    write_files(place, order["files"])
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, b"/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, place + b"/stdout", _CREATE, 0o644),
        (os.POSIX_SPAWN_OPEN, 2, place + b"/stderr", _CREATE, 0o644),
    ]
    return in_folder(cwd, order, actions, lock)


def in_folder(cwd: bytes, order: dict[str, Any], actions: list[Any], lock: bytes) -> int:
    """Start a process in a directory."""
    try:
        os.chdir(cwd)
        return spawn(order, actions, lock)
    except OSError as error:
        raise RefusedError(f"its directory {shown(cwd)}: {error.strerror}") from error
    finally:
        # Staying there would keep the payload's file system busy.
        os.chdir("/")


def claim(place: bytes) -> None:
    """Make the attempt directory, which can be made only once."""
    try:
        try:
            os.mkdir(place)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.mkdir(place)
    except FileExistsError as error:
        raise ClaimedError("the attempt was already claimed") from error
    except OSError as error:
        raise RefusedError(f"its directory {shown(place)}: {error.strerror}") from error


def write_files(place: bytes, files: dict[str, str]) -> None:
    """Write the texts that a payload finds when it begins."""
    for name, text in files.items():
        if name in _RESERVED or "/" in name:
            raise RefusedError(f"{shown(os.fsencode(name))} cannot be the name of a file of it")
        fd = os.open(os.path.join(place, os.fsencode(name)), _CREATE, 0o644)
        with open(fd, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)


def spawn(order: dict[str, Any], actions: list[Any], lock: bytes) -> int:
    """Start the process in the current directory and in a group of its own."""
    env = dict(_OURS) if order.get("inherit") else {}
    env.update((os.fsencode(name), os.fsencode(value)) for name, value in order["env"].items())
    env[os.fsencode(KEY)] = os.fsencode(order["key"])
    env[os.fsencode(STARTER)] = lock
    argv = [os.fsencode(word) for word in order["argv"]] or [b""]
    if boxed.kind(order):
        return spawn_boxed(order, actions, {KEY: order["key"], STARTER: os.fsdecode(lock)})
    return run(argv, env, env.get(b"PATH", os.fsencode(os.defpath)), actions)


def spawn_boxed(order: dict[str, Any], actions: list[Any], marks: dict[str, str]) -> int:
    """Start what makes a sandbox; the payload's environment is for inside alone."""
    argv, env, data = boxed.sandbox().wrap(order, marks)
    words = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    path = _OURS.get(b"PATH", b"") + b":/usr/bin:/bin:/usr/sbin:/sbin"
    with boxed.handed(data) as more:
        return run([os.fsencode(word) for word in argv], words, path, actions + more)


def run(argv: list[bytes], env: dict[bytes, bytes], path: bytes, actions: list[Any]) -> int:
    """Start a program in a group of its own."""
    program = find(argv[0], path)
    try:
        return os.posix_spawn(
            program,
            argv,
            env,
            file_actions=actions,
            setpgroup=0,
            setsigmask=(),
            setsigdef=_RESETTABLE,
        )
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise RefusedError(f"the interpreter of {shown(program)} is missing") from error
        raise RefusedError(f"{shown(program)}: {error.strerror}") from error


def find(name: bytes, path: bytes) -> bytes:
    """Find a program as a shell would, seen from the current directory."""
    candidates = [name] if b"/" in name else [os.path.join(d, name) for d in path.split(b":")]
    for candidate in candidates:
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    if name and any(os.path.exists(candidate) for candidate in candidates):
        raise RefusedError(f"{shown(name)} is not executable")
    raise RefusedError(f"no such program {shown(name)}")


def restrict(pid: int, limits: dict[str, int]) -> None:
    """Set kernel limits on a process that has just begun."""
    for name, value in limits.items():
        if name not in _LIMITS:
            continue
        kind = _LIMITS[name]
        hard = resource.prlimit(pid, kind)[1]
        bound = hard if hard != resource.RLIM_INFINITY else value + _CPU_SLACK_SECONDS
        # The soft limit sends SIGXCPU, which says more than the SIGKILL of the hard one.
        slack = _CPU_SLACK_SECONDS if name == "cpu_seconds" else 0
        resource.prlimit(pid, kind, (min(value, bound), min(value + slack, bound)))


def shown(name: bytes) -> str:
    """Quote a name so that it can be printed whatever its bytes."""
    return repr(name.decode(errors="backslashreplace"))
