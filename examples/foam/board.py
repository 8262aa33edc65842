"""What a person sees while the demonstration runs: a board on a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pilotage.base import units
from pilotage.job.model import Job, State

from .progress import STEPS, Progress, Scan, trigger

#: Scans that a board has room for; the newest are shown.
ROWS = 16

#: Jobs shown below the table.
LATEST = 3

SIGNS = {
    State.QUEUED: ("·", "dim"),
    State.RUNNING: ("▶", "cyan"),
    State.DONE: ("✔", "green"),
    State.FAILED: ("✘", "bold red"),
    State.HELD: ("‖", "yellow"),
    State.CANCELLED: ("✘", "red"),
}

Show = Callable[[Progress], None]


@contextlib.contextmanager
def shown(console: Console, root: Path) -> Iterator[Show]:
    """Yield what shows progress: it redraws a board, or writes a line for each end of a job."""
    if not console.is_terminal:
        yield Lines(console, root)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda now: live.update(board(now, root), refresh=True)


class Lines:
    """One line for each job that ended."""

    def __init__(self, console: Console, root: Path) -> None:
        """Begin with nothing told."""
        self._console = console
        self._root = root
        self._told: set[int] = set()

    def __call__(self, now: Progress) -> None:
        """Tell what is new."""
        for job in now.jobs:
            if job.ended is not None and job.id not in self._told:
                self._told.add(job.id)
                line = Text(f"{now.elapsed:6.1f} s  ").append(story(job, now, self._root))
                self._console.print(line, soft_wrap=True)


def board(now: Progress, root: Path) -> Group:
    """Draw everything."""
    latest = now.jobs[-LATEST:]
    blank = [Text() for _ in range(LATEST - len(latest))]
    return Group(
        head(now),
        table(now.scans[-ROWS:]),
        Text(),
        *(Text("  ").append(story(job, now, root)) for job in latest),
        *blank,
    )


def head(now: Progress) -> Text:
    """Say how far all of it is, in one line."""
    line = Text()
    line.append(f"{len(now.scans)}/{now.expected}", "bold").append(" scans drawn   ")
    line.append(f"{now.accepted}", "bold green").append(" accepted   ")
    line.append(f"{now.rejected}", "bold").append(" turned away   ")
    running = sum(job.state is State.RUNNING for job in now.jobs)
    line.append(f"{len(now.jobs)}", "bold").append(" jobs, ")
    line.append(f"{running}", "bold cyan").append(" at work   ")
    line.append(f"{now.elapsed:.0f} s", "dim")
    return line.append("\n")


def table(scans: list[Scan]) -> Table:
    """Draw a row for each scan and a column for each step it has taken."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    drawn.add_column("  scan")
    for step, width in zip(STEPS, (36, 8, 14), strict=True):
        drawn.add_column(step, min_width=width)
    for scan in scans:
        drawn.add_row(f"  {scan.name}", judged(scan), mark(scan.jobs.get("segment")), counted(scan))
    return drawn


def judged(scan: Scan) -> Text:
    """Show what the judge said."""
    job, said = scan.jobs.get("judge"), scan.verdict
    if said is None or job is None or job.state is not State.DONE:
        return mark(job)
    if said.accepted:
        return mark(job).append(f" {said.bubbles_estimated} bubbles", "default")
    return Text("✘ ", "dim").append(said.reason, "dim")


def counted(scan: Scan) -> Text:
    """Show what was measured."""
    sign = mark(scan.jobs.get("analyse"))
    return sign.append(f" {scan.measured} measured", "default") if scan.measured else sign


def mark(job: Job | None) -> Text:
    """Show the state of a job as a sign."""
    return Text() if job is None else Text(*SIGNS.get(job.state, (job.state, "")))


def story(job: Job, now: Progress, root: Path) -> Text:
    """Say which event made a job and what became of it."""
    line = Text(f"{trigger(job, root):<28}", "dim").append(" → ", "dim").append(f"{job.name:<8}")
    line.append(" ").append(mark(job))
    if job.started is not None and job.ended is not None:
        line.append(f" {units.for_people(job.ended - job.started)}", "dim")
    verdict = next((s.verdict for s in now.scans if s.jobs.get("judge") is job), None)
    if verdict is not None and job.ended is not None:
        line.append(f"   {verdict.reason}", "dim")
    if job.reason:
        line.append(f"   {job.reason}", "red")
    return line


def scans(count: int) -> str:
    """Say one scan, or several scans."""
    return "scan" if count == 1 else "scans"


def summary(now: Progress, page: Path) -> Text:
    """Say what came of it."""
    done = sum(job.state is State.DONE for job in now.jobs)
    steps = ", ".join(f"{sum(j.name == s for j in now.jobs)} {s}" for s in (*STEPS, "report"))
    text = Text("\n")
    text.append(f"{now.measured:,}".replace(",", " "), "bold").append(" bubbles measured in ")
    text.append(f"{now.accepted}", "bold green").append(f" {scans(now.accepted)}; ")
    text.append(f"{now.rejected}", "bold")
    text.append(f" {scans(now.rejected)} {'was' if now.rejected == 1 else 'were'} turned away\n")
    text.append(f"{done}", "bold").append(f" jobs done in {units.for_people(now.elapsed)} ")
    text.append(f"({steps})\n", "dim")
    return text.append("\nreport  ", "dim").append(str(page), "bold cyan")
