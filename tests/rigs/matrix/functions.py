"""Functions that works of Python call: this file alone travels with them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def join(yard: str, name: str, values: list[str]) -> str:
    """Join texts, as the program of other works joins files."""
    _say(yard, f"began {name}")
    _wait(yard, name)
    _say(yard, f"ended {name}")
    return "".join(values)


def join_files(yard: str, name: str, target: str, sources: list[str]) -> None:
    """Join files, as the program of other works does."""
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    Path(target).write_text(join(yard, name, [Path(one).read_text() for one in sources]))


def _say(yard: str, line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
    with Path(yard, "ledger").open("a") as ledger:
        ledger.write(f"{line} {os.getpid()}\n")


def _wait(yard: str, name: str) -> None:
    gates = Path(yard, "gates")
    while not (gates / name).exists() and gates.is_dir():
        time.sleep(0.05)
