"""A real broker, a real Slurm, and an agent between them; what calls Slurm leaves a line."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import apsw

from testbed.rabbit import Rabbit
from testbed.slurm import Slurm
from tests.rigs.broker import edge_agent
from tests.rigs.broker.edge_agent import ADMIN, AGENT, USER, Edge

#: Seconds between two looks at the queue of Slurm.
POLL_S = 1.0
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: Stands before a tool of Slurm, and notes when it was called.
_COUNTER = '#!/bin/sh\ndate +%s.%N >> "{file}"\nexec {real} "$@"\n'
_TOOLS = ("sbatch", "squeue", "sacct")
_PATIENCE_S = 600.0


class Bed:
    """An agent at a site with Slurm, and what it has done so far."""

    def __init__(self, edge: Edge, cluster: Slurm, tools: Path) -> None:
        """Take the folder of what stands before the tools of Slurm."""
        self.edge = edge
        self.cluster = cluster
        self._tools = tools

    def calls(self, tool: str) -> list[float]:
        """Return when a tool of Slurm was called."""
        file = self._tools / f"{tool}.calls"
        return [float(line) for line in file.read_text().split()] if file.exists() else []

    def count(self, query: str) -> int:
        """Count something in the agent's store, as somebody who only reads."""
        path = str(self.edge.root / ".pilotage" / "store.db")
        db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        db.set_busy_timeout(10_000)
        try:
            return int(next(iter(db.execute(query)))[0])
        finally:
            db.close()

    def processor(self) -> float:
        """Return the processor time that the agent and its program at the site have used."""
        return sum(processor(pid) for pid in self._pids())

    def memory(self) -> float:
        """Return the memory of the agent and of its program at the site, in MB."""
        return sum(_memory(pid) for pid in self._pids())

    def wait(self, condition: Callable[[], object], pause: float = 0.02) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(self.edge.told())
            time.sleep(pause)

    def _pids(self) -> list[int]:
        pid = self.edge.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]


def counted(scratch: Path) -> Path:
    """Return a folder with tools of Slurm that note when they are called."""
    tools = scratch / "tools"
    tools.mkdir(parents=True)
    for name in _TOOLS:
        script = tools / name
        real = shutil.which(name)
        script.write_text(_COUNTER.format(file=tools / f"{name}.calls", real=real))
        script.chmod(0o755)
    return tools


@contextlib.contextmanager
def bed(scratch: Path, limits: Mapping[str, Any]) -> Iterator[Bed]:
    """Have everything up; the agent is not started yet."""
    tools = counted(scratch)
    batch = {"path": [str(tools)], "poll": f"{POLL_S:g}s", "jobs": 20_000, "per_second": 1000.0}
    with (
        Rabbit(users=(AGENT, ADMIN, USER)) as rabbit,
        Slurm() as cluster,
        edge_agent.at_slurm(
            scratch / "agent", rabbit, cluster, settings={"batch": batch, "limits": limits}
        ) as edge,
    ):
        yield Bed(edge, cluster, tools)


def processor(pid: int) -> float:
    """Return the processor time that a process has used, in seconds."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS


def _memory(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 1e6
