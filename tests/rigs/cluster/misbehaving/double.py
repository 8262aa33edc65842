"""A Slurm that misbehaves: its commands obey a plan of faults, its jobs really run.

    with Misbehaving(folder) as double:
        double.plan("sbatch", "late_accept", times=2)
        subprocess.run(["sbatch", …], env=double.env)

Behind it is the queue of one machine (`pilot/node/queue`). A fault is used up by one call of its
command; when none is left the command behaves. What each fault does is in `faults.py`.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

from pilotage.node.queue import program, submission
from tests.rigs.cluster.misbehaving import faults
from tests.rigs.cluster.misbehaving.jobs import locked

TOOLS = ("sbatch", "squeue", "sacct", "scancel", "srun")


class Called(NamedTuple):
    """One call of a command."""

    time: float
    tool: str
    argv: tuple[str, ...]
    #: Which fault it obeyed; empty if none.
    fault: str
    #: The ids of what it accepted.
    accepted: tuple[int, ...]


class Misbehaving:
    """A scheduler to try faults with; `folder` must be new."""

    def __init__(self, folder: Path, *, scale: float = 0.05, accounting: bool = False) -> None:
        """Set it up; a minute of a slow command takes `scale` minutes."""
        self.folder = folder
        #: For `Site.path`, or to put first into PATH.
        self.bin = folder / "bin"
        self._settings = {"scale": scale, "accounting": accounting}

    def __enter__(self) -> Self:
        self.bin.mkdir(parents=True)
        (self.folder / "settings.json").write_text(json.dumps(self._settings))
        root = Path(__file__).parents[4]
        python = f"PYTHONPATH='{root / 'src'}:{root}' exec '{sys.executable}'"
        for name in TOOLS:
            path = self.bin / name
            words = f"-m tests.rigs.cluster.misbehaving.tool {name} '{self.folder}'"
            path.write_text(f'#!/bin/sh\n{python} {words} "$@"\n')
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return self

    def __exit__(self, *_: object) -> None:
        """Call off whatever is left, and wait until it is gone."""
        found = submission.every(str(self.folder / "queue"))
        for one in found:
            for index in range(one.order()["count"]):
                program.stop(one, index)
        deadline = time.monotonic() + 60
        for one in found:
            keeper = one.read("keeper.json")
            while keeper and submission.lives(keeper) and time.monotonic() < deadline:
                time.sleep(0.05)

    @property
    def env(self) -> dict[str, str]:
        """The environment in which commands are found here."""
        return {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"}

    def plan(self, tool: str, fault: str, *, times: int = 1, **more: Any) -> None:
        """Have the next calls of a command fail so; `more` is what the fault takes."""
        if fault not in faults.KNOWN[tool]:
            raise ValueError(f"{tool} knows {', '.join(faults.KNOWN[tool])}, not {fault}")
        with locked(self.folder / "plan.json", []) as plan:
            plan.extend({"tool": tool, "fault": fault, **more} for _ in range(times))

    def left(self) -> list[str]:
        """Return the faults that nothing has met yet."""
        with locked(self.folder / "plan.json", []) as plan:
            return [f"{one['tool']} {one['fault']}" for one in plan]

    def clear(self) -> None:
        """Behave from now on."""
        with locked(self.folder / "plan.json", []) as plan:
            plan.clear()

    def calls(self, tool: str = "") -> list[Called]:
        """Return the calls so far, of one command or of all."""
        try:
            lines = (self.folder / "calls.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        found = [Called(*json.loads(line)) for line in lines]
        return [one for one in found if tool in {"", one.tool}]

    def accepted(self) -> list[int]:
        """Return the ids of all jobs that were ever accepted, whatever was said of them."""
        return [number for one in self.calls() for number in one.accepted]
