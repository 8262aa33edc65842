"""Kinds of sandbox: what each protects, and which of them work here."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import tempfile
import time
from typing import Any

from . import cgroup
from .rule import GATEKEEPER
from .wrap import wrap

#: What a hostile payload may try, with what it would gain.
THREATS = {
    "token": "read the token of the pilot from its file",
    "environment": "read the environment of the pilot",
    "memory": "read the memory of the pilot",
    "files": "read or change the files of the pilot",
    "signal": "signal the pilot or another payload",
    "disk": "fill the disk",
    "forks": "start processes without end",
    "outlive": "run on after it was killed",
    "others": "read the directory of another user's payload",
}

_ALL = frozenset(THREATS)

_PROTECTED = {
    # A starter adopts and kills what its payloads leave behind, whatever they are in.
    "none": frozenset({"outlive"}),
    "bubblewrap": _ALL,
    "podman": _ALL,
    "apptainer": _ALL - {"forks"},
    "user": _ALL,
}

#: The kinds of sandbox, the weakest first.
KINDS = tuple(_PROTECTED)


def protects(kind: str) -> dict[str, bool]:
    """Return for each threat whether this kind of sandbox prevents it."""
    return {threat: threat in _PROTECTED[kind] for threat in THREATS}


def words(kind: str) -> str:
    """Describe in one sentence what a payload in this kind of sandbox can still do."""
    open_ = [THREATS[threat] for threat, shut in protects(kind).items() if not shut]
    if not open_:
        return f"A payload in {kind} can do none of what is tested."
    listed = "; ".join(open_)
    return f"A payload in {kind} can: {listed}."


_PATIENCE_SECONDS = 30.0
_PROGRAMS = {"bubblewrap": "bwrap", "podman": "podman", "apptainer": "apptainer", "user": "sudo"}


def available(probe: bool = True) -> list[str]:  # noqa: FBT001, FBT002 - reads well: available(probe=False)
    """List the kinds that work here: `true` was run in each, or at least it is installed."""
    return [kind for kind in KINDS if (_works(kind) if probe else _installed(kind))]


def _installed(kind: str) -> bool:
    if kind == "apptainer" and shutil.which("singularity"):
        return True
    if kind == "user" and not os.path.exists(GATEKEEPER):
        return False
    if kind == "bubblewrap" and os.geteuid() == 0 and not cgroup.root():
        return False
    return kind == "none" or shutil.which(_PROGRAMS[kind]) is not None


@functools.cache
def _works(kind: str) -> bool:
    """Run a program in a sandbox of this kind."""
    if kind == "none":
        return True
    if not _installed(kind):
        return False
    if kind == "apptainer":
        # It needs an image, and there is none to try.
        return _succeeds(
            [shutil.which("apptainer") or "singularity", "version"], dict(os.environ), b""
        )
    place = tempfile.mkdtemp(prefix="pilotage-probe-")
    try:
        order: dict[str, Any] = {"key": "probe", "argv": ["true"], "env": {}, "dir": place}
        return _succeeds(*wrap({**order, "cwd": place, "sandbox": {"kind": kind}}))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _succeeds(argv: list[str], env: dict[str, str], handed: bytes) -> bool:
    """Run a command to its end; return whether that was good."""
    fd = os.memfd_create("handed")
    try:
        os.write(fd, handed)
        os.lseek(fd, 0, os.SEEK_SET)
        actions: list[tuple[Any, ...]] = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, 2, 1),
            (os.POSIX_SPAWN_DUP2, fd, 3),
        ]
        path = {"PATH": os.environ.get("PATH", os.defpath)}
        pid = os.posix_spawnp(argv[0], argv, {**path, **env}, file_actions=actions, setpgroup=0)
    except OSError:
        return False
    finally:
        os.close(fd)
    return _wait(pid) == 0


def _wait(pid: int) -> int:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
        time.sleep(0.002)
