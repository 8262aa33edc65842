"""What the examples share: a fresh project, `pilotage up` beside it, and a look at its jobs."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from pilotage.hub.project import Project
from pilotage.job.model import Job, State
from pilotage.job.records import Selection

#: Says that a folder was made by an example and may be made anew.
MARK = ".made-by-an-example"

#: How a person starts the rules and their jobs.
UP = (sys.executable, "-m", "pilotage", "up")

#: What it says.
LOG = "pilotage-up.log"

#: Seconds without anything to do after which an example is over.
REST_S = 1.0

#: States in which nothing more happens to a job by itself, and which no example wants.
BAD = frozenset({State.FAILED, State.CANCELLED, State.REJECTED, State.HELD})


def play(main: Callable[[], int]) -> NoReturn:
    """Play an example and end with its status; Ctrl-C leaves it in good order."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)


def fresh(folder: Path, *sources: Path, also: Sequence[str] = ()) -> Path:
    """Make a project with copies of some folders and files, and with empty folders."""
    if (folder / MARK).exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        sys.exit(f"{folder} holds other files; name a new or empty folder with --keep")
    (folder / MARK).touch()
    for source in sources:
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / source.name, ignore=ignore)
        else:
            shutil.copy(source, folder)
    for name in also:
        (folder / name).mkdir()
    (folder / "pilotage.toml").touch()
    return folder.resolve()


@contextlib.contextmanager
def up(project: Project) -> Iterator[None]:
    """Run `pilotage up` in a project, as a person would in another terminal."""
    with (project.root / LOG).open("wb") as file:
        # In a group of its own: Ctrl-C is for us, and we stop it in good order.
        process = subprocess.Popen(
            UP, cwd=project.root, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            process_group=0,
        )  # fmt: skip
        try:
            while process.poll() is None and not project.running():
                time.sleep(0.05)
            check(project)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def check(project: Project) -> None:
    """Leave if nobody runs the project any more: nothing would ever happen."""
    if not project.running():
        log = project.root / LOG
        sys.exit(f"`pilotage up` ended by itself; {log} says why:\n{log.read_text()}")


def jobs(project: Project) -> list[Job]:
    """Read all jobs, the oldest first."""
    return project.jobs(Selection())


class Rest:
    """Notices that nothing has been left to do for a while."""

    def __init__(self, seconds: float = REST_S) -> None:
        """Ask for so many seconds of rest."""
        self._seconds = seconds
        self._since = time.monotonic()

    def look(self, *, busy: bool) -> bool:
        """Say whether it has been quiet for long enough."""
        if busy:
            self._since = time.monotonic()
        return time.monotonic() - self._since >= self._seconds


def complain(found: Sequence[Job]) -> int:
    """Name the jobs that did not end well; return the exit status."""
    bad = [job for job in found if job.state in BAD]
    for job in bad:
        print(f"job {job.id} ({job.name}) is {job.state}: {job.reason}", file=sys.stderr)
    return 1 if bad else 0
