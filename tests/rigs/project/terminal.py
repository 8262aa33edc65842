"""A person at a terminal, who answers when asked."""

from __future__ import annotations

import os
import pty
import select
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.ssh import Sshd

#: Log in by `ssh` at the terminal; words are the host, the state folder and settings of `ssh`.
LOGIN = """\
import sys
from pathlib import Path
from pilotage.batch.shell.ssh import SshShell
SshShell("bed", sys.argv[1], Path(sys.argv[2]), settings=sys.argv[3]).login("1h")
"""


def typed(
    argv: Sequence[str],
    answers: Sequence[tuple[str, str]],
    env: Mapping[str, str] | None = None,
    patience: float = 30.0,
) -> tuple[int, str]:
    """Run a program at a terminal, answer each question once it has been asked, in order.

    Return its exit status and all that was seen.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(argv[0], list(argv), {**os.environ, **(env or {})})  # noqa: S606 - no shell
    seen, left, deadline = "", list(answers), time.monotonic() + patience
    at = 0
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 0.2)[0]:
            continue
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:  # the other side is closed
            break
        if not data:
            break
        seen += data.decode(errors="replace")
        if left and (found := seen.find(left[0][0], at)) >= 0:
            at = found + len(left[0][0])
            os.write(terminal, left.pop(0)[1].encode() + b"\n")
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), seen


def login(sshd: Sshd, state: Path, alias: str, *answers: tuple[str, str]) -> tuple[int, str]:
    """Log in to a server of the test bed as a person does."""
    words = [sys.executable, "-c", LOGIN, alias, str(state), str(sshd.config)]
    return typed(words, answers)
