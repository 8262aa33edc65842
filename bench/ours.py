"""Pilotage, driven as a user does: a folder with rules, and a process that runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from bench import machine
from bench.load import LINES, Load, Outcome, astray, write
from pilotage.hub.project import Project
from pilotage.job.model import Command, JobSpec, NewJob, Resources

_GLANCE_S = 0.002
_IN_BOOK = 50
_ROOT = Path(__file__).parents[1]
_TALLY = """
SELECT rule, binding->>'path', binding->>'sweep', count(*) FROM job WHERE rule <> ''
GROUP BY 1, 2, 3
"""


class Hub:
    """A running process of ours."""

    def __init__(self, root: Path, process: subprocess.Popen[str]) -> None:
        """Look at it from outside: at its store and at what it has used."""
        self.root = root
        self._process = process
        flags = apsw.SQLITE_OPEN_READONLY
        self._db = apsw.Connection(str(root / ".pilotage" / "store.db"), flags=flags)
        self._db.set_busy_timeout(10_000)
        self._before = self._last()

    @property
    def pids(self) -> list[int]:
        """The hub itself and the process that starts payloads."""
        return [self._process.pid, *machine.children(self._process.pid)]

    def cpu(self) -> float:
        """Return the processor time used so far, without that of payloads."""
        return machine.cpu_seconds(self.pids)

    def jobs(self) -> int:
        """Return how many jobs are durable."""
        return self._last() - self._before

    def live(self) -> int:
        """Return how many jobs are not at an end."""
        states = "'waiting', 'queued', 'running'"
        query = f"SELECT count(*) FROM job WHERE state IN ({states}) AND rule <> ''"  # noqa: S608
        return int(self._db.execute(query).get)

    def wait(self, there: Callable[[], bool], cap: float) -> float:
        """Return when something is so, or when the time is up."""
        until = time.monotonic() + cap
        while not there() and time.monotonic() < until:
            time.sleep(_GLANCE_S)
        return time.time()

    def tally(self) -> Counter[Hashable]:
        """Count the jobs of each rule, file and point of a sweep."""
        return Counter({row[:3]: row[3] for row in self._db.execute(_TALLY)})

    def outputs(self) -> dict[str, str]:
        """Return what each job printed, by the path of its file."""
        query = "SELECT binding->>'path', dir FROM job JOIN attempt ON attempt.job = job.id"
        return {
            path: (Path(place) / "stdout").read_text() for path, place in self._db.execute(query)
        }

    def close(self) -> list[str]:
        """End the process; return its warnings."""
        self._db.close()
        self._process.terminate()
        said, _ = self._process.communicate(timeout=60)
        return said.splitlines()

    def _last(self) -> int:
        return int(self._db.execute("SELECT coalesce(max(id), 0) FROM job").get)


@contextmanager
def hub(
    rules: list[str], scratch: Path, *, busy: bool, warnings: list[str] | None = None
) -> Iterator[Hub]:
    """Run a project with these rules; `busy` if all its cores are taken by another job."""
    # Not removed until all is over: ext4 is slow to make files where many were just deleted.
    root = Path(tempfile.mkdtemp(dir=scratch, prefix="ours-"))
    (root / "rules").mkdir()
    (root / "in").mkdir()
    for number, text in enumerate(rules):
        (root / "rules" / f"{number}.toml").write_text(text)
    if busy:
        _occupy(root)
    one = Hub(root, _start(root))
    try:
        yield one
    finally:
        said = one.close()
        if warnings is not None:
            warnings += said


def _occupy(root: Path) -> None:
    needs = Resources(cpus=machine.cores())
    spec = JobSpec(Command(("sleep", "3600")), name="busy", resources=needs)
    with Project(root) as project:
        project.submit(NewJob(spec))


def _start(root: Path) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "bench.up", str(root)]
    env = os.environ | {"PYTHONPATH": f"{_ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env)
    if process.stdout is None or process.stdout.readline() != "ready\n":
        raise RuntimeError("the hub did not get ready")
    time.sleep(0.2)  # what it still does after its start is not part of any measurement
    return process


def books(load: Load) -> list[str]:
    """Write the rules of a load, some to a book."""
    lines = "\n".join(LINES[load.recipe])
    interpreter = f"\ninterpreter = {sys.executable!r}" if load.recipe == "python" else ""
    recipe = f"[recipe.work]\nscript = '''\n{lines}\n'''\nargs = ['{{path}}']{interpreter}\n"
    guard = f"max_depth = {load.hops + 1}"
    tables = [
        f"[rule.{name}]\nfiles = 'in/*.txt'\nrecipe = 'work'\n{guard}\n" for name in load.names
    ]
    parts = ("\n".join(tables[at : at + _IN_BOOK]) for at in range(0, load.rules, _IN_BOOK))
    return [recipe, *parts]


def run(load: Load, scratch: Path, cap: float = 600.0) -> Outcome:
    """Put a load on a fresh hub."""
    with hub(books(load), scratch, busy=not load.run) as one:

        def there() -> bool:
            return one.jobs() >= load.jobs and not (load.run and one.live())

        before = one.cpu()
        written = write([one.root / "in"], load.files, content=load.content)
        end = one.wait(there, cap)
        used = one.cpu() - before
        lost, doubled = astray(one.tally(), load.jobs)
    return Outcome(seconds=end - written.first, cpu=used / load.jobs, lost=lost, doubled=doubled)
