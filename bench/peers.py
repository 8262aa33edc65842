"""MEOW, in an environment of its own and seen from outside; none of its code is in ours."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import environment, machine
from bench.load import LINES, Load, Outcome, astray, write

NAME = "meow-base"
_WANTED = "meow-base==1.0.5"
_DRIVER = Path(__file__).parent / "meow_driver.py"
_GLANCE_S = 0.01
#: What a job is known by, among the lines of its record.
_IDENTITY = re.compile(r"^(?:  event_path|pattern): .*$|^parameters:\n(?:  .*\n)*", re.MULTILINE)
#: Its settle time and pauses in seconds: the least that it takes.
_PATIENCE = {"settle": 1, "pause": 1}


def python() -> Path:
    """Return the interpreter of an environment with MEOW, made at the first time."""
    return environment.python(_WANTED, [_WANTED])


class Meow:
    """A running MEOW."""

    def __init__(self, root: Path, process: subprocess.Popen[bytes]) -> None:
        """Read what its driver says."""
        self.root = root
        self._process = process
        self._unread = b""

    def cpu(self) -> float:
        """Return the processor time used so far, without that of payloads."""
        return machine.cpu_seconds([self._process.pid])

    def listen(self, seconds: float) -> dict[str, Any] | None:
        """Return the next thing said, or nothing when the time is up."""
        stdout = self._process.stdout
        if stdout is None:
            return None
        until = time.monotonic() + seconds
        while b"\n" not in self._unread:
            left = until - time.monotonic()
            if left <= 0 or not select.select([stdout], [], [], left)[0]:
                return None
            if not (more := os.read(stdout.fileno(), 1 << 16)):
                raise RuntimeError(f"{NAME} ended")
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def reach(self, wanted: int, cap: float, quiet: float) -> tuple[int, float]:
        """Wait until so many are counted, or no more come; return how many and when."""
        count, at = 0, time.time()
        until = time.monotonic() + cap
        while count < wanted and (left := until - time.monotonic()) > 0:
            news = self.listen(min(left, quiet))
            if news is None:
                break
            count, at = news["count"], news["time"]
        return count, at

    def tally(self) -> Counter[Hashable]:
        """Count the matched events of each rule and file."""
        if self._process.stdin is not None:
            self._process.stdin.write(b"tally\n")
            self._process.stdin.flush()
        while (news := self.listen(120.0)) is not None:
            if "tally" in news:
                return Counter(news["tally"])
        raise RuntimeError(f"{NAME} does not answer")

    def ended(self, wanted: int, cap: float) -> float:
        """Wait until so many jobs have left the queue; return when."""
        folder = self.root / "job_output"
        until = time.monotonic() + cap
        while time.monotonic() < until and len(os.listdir(folder)) < wanted:  # noqa: PTH208 - names
            time.sleep(_GLANCE_S)
        return time.time()

    def close(self) -> None:
        """End it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(60)


@contextmanager
def meow(load: Load, scratch: Path, until: str) -> Iterator[Meow]:
    """Run MEOW with the rules of a load until jobs are `matched`, `scheduled` or `done`."""
    folder = tempfile.mkdtemp(dir=scratch, prefix="meow-")
    config = {
        "base": "data",
        "path": "in/*",
        "rules": load.names,
        "lines": LINES[load.recipe],
        "python": load.recipe == "python",
        "conductors": machine.cores(),
        "until": until,
        **_PATIENCE,
    }
    process = subprocess.Popen(
        [str(python()), str(_DRIVER), json.dumps(config)],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    one = Meow(Path(folder), process)
    try:
        if one.listen(120.0) is None:
            raise RuntimeError(f"{NAME} did not get ready")
        time.sleep(0.2)
        yield one
    finally:
        one.close()


def run(load: Load, scratch: Path, cap: float = 600.0) -> Outcome:
    """Put a load on a fresh MEOW."""
    with meow(load, scratch, "done" if load.run else "scheduled") as one:
        before = one.cpu()
        written = write([one.root / "data" / "in"], load.files, content=load.content)
        if load.run:
            end = one.ended(load.jobs, cap)
        else:
            _, end = one.reach(load.jobs, cap, quiet=60.0)
        used = one.cpu() - before
        folder = one.root / ("job_output" if load.run else "job_queue")
        lost, doubled = astray(_jobs(folder), load.jobs)
    return Outcome(seconds=end - written.first, cpu=used / load.jobs, lost=lost, doubled=doubled)


def _jobs(folder: Path) -> Counter[Hashable]:
    """Count the jobs of each rule, file and set of parameters."""
    records = (file.read_text() for file in folder.glob("*/job.yml"))
    return Counter(tuple(_IDENTITY.findall(record)) for record in records)
