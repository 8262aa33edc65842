"""The demonstration: an instrument draws scans of foams while four rules make work of them.

    python -m examples.foam [--scans 12] [--seed 12] [--keep DIR]

It makes a project, runs `pilotage up` in it, starts the instrument, shows what happens, and leaves
one page with the results and the graph of what ran.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from examples import stage
from pilotage.hub.project import Project
from pilotage.result import report

from . import board, instrument
from .progress import Progress, Watch

HERE = Path(__file__).parent
FOLDERS = ("scans", "judged", "segmented", "analysed", "report")

#: Seconds between two looks.
GLANCE_S = 0.12


def main() -> int:
    """Play the demonstration; return its exit status."""
    options = read_options()
    console = Console(highlight=False)
    root = stage.fresh(options.keep, HERE / "rules", HERE / "science", also=FOLDERS)
    console.print(f"project  [bold]{shorten(root)}[/]")
    console.print("rules    [bold]judge → segment → analyse → report[/]\n")
    with Project(root) as project:
        last = watch(project, options, console)
        page = root / "report.html"
        part = root / "report" / "foam.part.html"
        lead = part.read_text() if part.exists() else None
        report.write(project.db, page, title="Bubbles in foam: the run", lead_html=lead)
    console.print(board.summary(last, shorten(page)), soft_wrap=True)
    return stage.complain(last.jobs) or int(last.measured == 0 and last.accepted > 0)


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="examples.foam", description=__doc__.split("\n")[0])
    parser.add_argument("--scans", type=int, default=12, help="how many scans are drawn (12)")
    parser.add_argument("--seed", type=int, default=12, help="the same seed draws the same scans")
    parser.add_argument("--every", type=float, default=1.5, help="seconds from scan to scan (1.5)")
    parser.add_argument(
        "--keep", type=Path, default=Path("demo-run"), metavar="DIR",
        help="the folder of the project (demo-run, which is made anew)",
    )  # fmt: skip
    return parser.parse_args()


def watch(project: Project, options: argparse.Namespace, console: Console) -> Progress:
    """Run the rules and the instrument; show what happens until there is nothing left to do."""
    look = Watch(project, options.scans).look
    rest = stage.Rest()
    with (
        stage.up(project),
        drawing(project.root, options) as instrument,
        board.shown(console, project.root) as show,
    ):
        while not rest.look(busy=(now := look()).busy):
            show(now)
            stage.check(project)
            if instrument.poll():
                sys.exit("the instrument broke")
            time.sleep(GLANCE_S)
        show(now)
    return now


@contextlib.contextmanager
def drawing(root: Path, options: argparse.Namespace) -> Iterator[subprocess.Popen[bytes]]:
    """Let the instrument work beside us."""
    argv = [sys.executable, "-m", instrument.__name__, str(root / "scans")]
    argv += ["--scans", str(options.scans), "--seed", str(options.seed)]
    process = subprocess.Popen([*argv, "--every", str(options.every)])
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def shorten(path: Path) -> Path:
    """Name a path as the person who reads it would."""
    here = os.getcwd()  # noqa: PTH109 - text is compared
    return path.relative_to(here) if str(path).startswith(f"{here}/") else path


if __name__ == "__main__":
    stage.play(main)
