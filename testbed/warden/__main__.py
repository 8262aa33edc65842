"""The warden itself.

It is the parent of all daemons and of what those leave behind: batch systems start jobs that leave
their tree on purpose. When the socket it reads closes, whatever the reason, it kills every process
below it and undoes the journal.

    python -m testbed.warden JOURNAL
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import FrameType

from testbed import processes
from testbed.journal import Journal

from . import Order

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Start what is ordered until there is nobody to order."""
    journal = Journal(Path(sys.argv[1]))
    for number in DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, reap)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    journal.write("warden", str(processes.Process.of(os.getpid())))
    serve(journal)
    while below := processes.below(os.getpid()):
        processes.end(below)
    journal.undo()


def serve(journal: Journal) -> None:
    """Answer each order."""
    with socket.socket(fileno=0) as client, client.makefile("rw") as stream:
        for line in stream:
            stream.write(json.dumps(obey(Order(**json.loads(line)), journal)) + "\n")
            stream.flush()


def obey(order: Order, journal: Journal) -> dict[str, str]:
    """Start a process; return it or why that failed."""
    try:
        with Path(order.log).open("ab") as log:
            child = subprocess.Popen(
                order.argv, env=order.env, cwd=order.cwd, user=order.user, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - there is one thread here
            )  # fmt: skip
    except OSError as error:
        return {"error": str(error)}
    process = str(processes.Process.of(child.pid))
    journal.write("process", process)
    # Its exit status goes to `reap`, with those of all that others left to us.
    child.returncode = 0
    return {"process": process}


def die_with_parent() -> None:
    """Have the kernel kill this process when the warden is killed; ignore no signal."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def reap(_number: int, _frame: FrameType | None) -> None:
    """Take the exit status of each child that ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


if __name__ == "__main__":
    main()
