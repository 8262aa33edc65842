"""Stand-ins for the tools of a batch system: small programs that say what was recorded.

What an adapter says is run as it is, shell and all; only what it finds in its path is ours.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pilotage.batch.system.model import BatchCommand, Output

REPLAY = Path(__file__).parent


class Tools:
    """A folder of programs, each of which notes how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, name: str, body: str) -> None:
        """Add a program, or change it."""
        path = self.folder / name
        # One word a line, and a line between calls.
        note = f'{{ printf "%s\\n" "$@"; echo --; }} >> "{path}.calls"\n'
        path.write_text(f"#!/bin/sh\n{note}{body}\n")
        path.chmod(0o755)

    def run(self, call: BatchCommand, **env: str) -> Output:
        """Run what an adapter says."""
        path = f"{self.folder}:{os.environ['PATH']}"
        done = subprocess.run(
            call.argv, env={"PATH": path, "HOME": str(self.folder), **env},
            input=call.input.encode(), capture_output=True, check=False, timeout=60,
        )  # fmt: skip
        return Output(done.returncode, done.stdout.decode(), done.stderr.decode())

    def calls(self, name: str) -> list[Sequence[str]]:
        """Return the words of each call of a program."""
        path = self.folder / f"{name}.calls"
        text = path.read_text() if path.exists() else ""
        return [words.splitlines() for words in text.split("--\n") if words]


def recorded(system: str, name: str) -> str:
    """Return what a tool said, without the line that an adapter has added to it."""
    return (REPLAY / system / name).read_text().removesuffix("\nend of listing\n")
