"""Beds without a terminal: who holds them is noted in a file, so that `down` finds them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import journal, processes
from .processes import Process
from .showroom import READY

ROOT = Path(__file__).parent.parent


def up(names: list[str]) -> int:
    """Bring systems up in a process of their own; return an exit status once they are."""
    holder = subprocess.Popen(
        [sys.executable, "-m", "testbed", "up", *names],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip
    for line in holder.stdout or ():
        if line.strip() == READY:
            print("Everything is up; python -m testbed down takes it down.")
            return 0
        print(line, end="")
    return holder.wait()


@contextmanager
def noted() -> Iterator[None]:
    """Note that this process holds beds."""
    journal.FOLDER.mkdir(mode=0o755, exist_ok=True)
    path = journal.FOLDER / f"{os.getpid()}.holder"
    path.write_text(str(Process.of(os.getpid())))
    try:
        yield
    finally:
        path.unlink()


def down() -> None:
    """End all holders, and undo what is left over."""
    for path in journal.FOLDER.glob("*.holder"):
        Process.parse(path.read_text()).end(signal.SIGTERM, timeout=60)
        path.unlink(missing_ok=True)
    down_left_over()


def down_left_over() -> None:
    """Undo what those left who crashed."""
    for each in journal.every():
        if each.left_over:
            for process in processes.marked(processes.MARK, each.name):
                processes.end([process, *processes.below(process.pid)])
            each.undo()
