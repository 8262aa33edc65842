"""What a cluster has written down of jobs that ended, with or without accounting."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Ended(NamedTuple):
    """One job, or one element of an array."""

    id: str
    name: str
    #: Its number in the array; 0 for a job that is none.
    place: int
    #: As Slurm has it, such as `COMPLETED`.
    state: str
    #: Cores, and the nodes it ran on; none if it never ran.
    cores: int
    nodes: str


def read(file: Path) -> list[Ended]:
    """Read all that has ended so far."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [_parse(line) for line in lines]


def _parse(line: str) -> Ended:
    facts = dict(word.partition("=")[::2] for word in line.split() if "=" in word)
    nodes = facts["NodeList"]
    return Ended(
        facts["JobId"], facts["Name"], int(facts.get("ArrayTaskId", 0)), facts["JobState"],
        int(facts["ProcCnt"]), "" if nodes == "(null)" else nodes,
    )  # fmt: skip
