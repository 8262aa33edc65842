"""COBalD in an environment of its own, told which runs to do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench import environment
from pilotage.pool.simulate.model import Figures

_FOLDER = Path(__file__).parent
_ROOT = _FOLDER.parents[1]
_DRIVER = _FOLDER / "drivers" / "cobald_driver.py"


class Cobald:
    """A driver that waits for runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Talk to it."""
        self._process = process

    def run(self, scenario: str, seed: int, setup: Mapping[str, Any]) -> Figures:
        """Return how a run went."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the driver has no pipes")
        words = {"scenario": scenario, "seed": seed, "setup": dict(setup)}
        self._process.stdin.write(msgspec.json.encode(words).decode() + "\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=Figures)


@contextmanager
def running() -> Iterator[Cobald]:
    """Run a driver until the end of the block."""
    python = environment.python("pools", ["-r", str(_FOLDER / "peers.txt")])
    with subprocess.Popen(
        [str(python), str(_DRIVER)],
        env=os.environ | {"PYTHONPATH": str(_ROOT / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Cobald(process)
