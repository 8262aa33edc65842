"""What is asked of both systems: the same rules, recipes and files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

Recipe = Literal["bash", "python", "chain", "stamp"]

#: In MEOW the line `infile=` is rewritten; we give the path as the first argument.
_BASH = ["#!/bin/bash", "infile=$1"]
LINES: dict[Recipe, list[str]] = {
    "bash": [*_BASH, ":"],
    "stamp": [*_BASH, 'echo "$EPOCHREALTIME"'],
    # Each file holds how many more are to follow.
    "chain": [
        *_BASH,
        'read -r left < "$infile"',
        "next=$((left - 1))",
        'if [ "$next" -ge 0 ]; then echo $next > "${infile%/*}/$next.txt"; fi',
    ],
    "python": ["infile = ''", "pass"],
}

_WRITER = Path(__file__).parent / "writer.py"


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to be done by both systems."""

    rules: int = 1
    files: int = 1
    recipe: Recipe = "bash"
    #: Whether jobs are run; else they are only scheduled.
    run: bool = True
    #: Jobs that each cause the next.
    hops: int = 1

    @property
    def jobs(self) -> int:
        """How many jobs there must be in the end."""
        return self.rules * self.files * self.hops

    @property
    def names(self) -> list[str]:
        """The names of the rules."""
        return [f"rule_{number}" for number in range(self.rules)]

    @property
    def content(self) -> str:
        """What is in each file."""
        return f"{self.hops - 1}\n"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a load, in seconds since just before the first file was opened."""

    #: Until the last job was scheduled, or done if jobs were run.
    seconds: float
    #: Processor time of the system a job, without that of the payloads.
    cpu: float
    lost: int
    doubled: int


class Written(msgspec.Struct, frozen=True):
    """When files were written."""

    first: float
    last: float


def write(folders: Sequence[Path], files: int, *, content: str = "0\n", kinds: int = 1) -> Written:
    """Have files written by a process of its own, as any instrument would."""
    words = [str(files), str(kinds), content, *map(str, folders)]
    argv = [sys.executable, "-I", "-S", str(_WRITER), *words]
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE)
    return Written(*json.loads(done.stdout))


def astray(jobs: Counter[Hashable], wanted: int) -> tuple[int, int]:
    """Count the jobs that are missing and those that are there again."""
    return max(0, wanted - len(jobs)), jobs.total() - len(jobs)
