"""Programs that tests start: ready or gone, and never left behind."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

#: Generous: machines are noisy, and who waits for a condition loses nothing by it.
PATIENCE = 60.0


def until_ready(
    process: subprocess.Popen[Any], ready: Callable[[], object],
    said: Callable[[], object] = lambda: "", patience: float = PATIENCE,
) -> None:  # fmt: skip
    """Wait until a program that was just started is ready.

    One that ends instead fails the test at once. It is reaped before that, as is one that takes too
    long, since whoever would end it is not told of it.
    """
    deadline = time.monotonic() + patience
    came, status = False, None
    try:
        while not (came := bool(ready())) and time.monotonic() < deadline:
            if (status := process.poll()) is not None:
                break
            time.sleep(0.02)
    finally:
        if not came:
            _reap(process)
    how = "was not ready in time" if status is None else f"ended with {status}"
    assert came, f"it {how}: {said()}"


def end(
    process: subprocess.Popen[Any], by: int = signal.SIGTERM, patience: float = PATIENCE
) -> int:  # fmt: skip
    """Tell a program to end, and return its status; as `wait`."""
    process.send_signal(by)
    return wait(process, patience)


def wait(process: subprocess.Popen[Any], patience: float = PATIENCE) -> int:
    """Wait until a program has ended; one that does not is killed, and fails the test."""
    try:
        return process.wait(patience)
    finally:
        _reap(process)


def _reap(process: subprocess.Popen[Any]) -> None:
    process.kill()
    process.wait()
