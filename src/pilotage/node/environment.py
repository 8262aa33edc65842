"""Environment of payloads, and scripts of the hub, the site or a group run once with a limit."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .discover.batch import PREFIXES

_WORDS = 2000
_GLANCE_S = 0.01
_CREATE = os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True)
class Outcome:
    """End of a program."""

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


_SETUP_SECONDS = 300.0
_NAMES = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TERM",
        "TMPDIR",
        "HOSTNAME",
        "LD_LIBRARY_PATH",
        "MODULEPATH",
        "MODULESHOME",
        "MODULE_VERSION",
        "LOADEDMODULES",
        "LMOD_CMD",
        "LMOD_DIR",
        "LMOD_PKG",
        "BASH_ENV",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "JOB_ID",
        "NSLOTS",
        "OMP_NUM_THREADS",
    }
)
_FAMILIES = (*PREFIXES, "LC_", "CUDA_", "NVIDIA_", "ROCR_", "HIP_", "XDG_")
#: What looks like a secret is not passed on, whatever it is called.
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CRED|PRIVATE|JWT", re.IGNORECASE)
_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)")


def scrubbed(env: Mapping[str, str]) -> dict[str, str]:
    """Keep of an environment what a payload may need."""
    return {name: value for name, value in env.items() if _is_harmless(name)}


def prepared(
    base: Mapping[str, str], given: Mapping[str, str], setup: Sequence[str], folder: str
) -> tuple[dict[str, str], Outcome | None]:
    """Add what the hub gives and what the set-up of the site makes of it.

    The set-up program says what to change with lines of `NAME=value`, on file descriptor 3 or, if
    it writes nothing there, on standard output.
    """
    env = {**base, **given}
    if not setup:
        return env, None
    outcome = run(setup, env, folder, "setup", _SETUP_SECONDS)
    lines = (outcome.extra or outcome.output).splitlines()
    matches = (_LINE.fullmatch(line) for line in lines)
    env.update((found[1], found[2]) for found in matches if found)
    return env, outcome


def _is_harmless(name: str) -> bool:
    known = name in _NAMES or name.startswith(_FAMILIES)
    return known and not _SECRET.search(name)
