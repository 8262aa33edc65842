"""`pilotage report`: write a report of all jobs as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pilotage.base import errors
from pilotage.cli.answer import Answer, line
from pilotage.cli.common import HERE, Common


def report(
    *,
    output: Annotated[Path, Parameter(name=("--output", "-o"), help="The file to write.")] = Path(
        "report.html"
    ),
    title: Annotated[str, Parameter(help="Its title; default: the project's name.")] = "",
    at: Common = HERE,
) -> Answer:
    """Write a report of all jobs as one self-contained HTML file."""
    # It brings the template engine along, which no other command needs.
    from pilotage.result import report as reports

    if not output.absolute().parent.is_dir():
        message = f"there is no folder `{output.parent}`"
        raise errors.NotFound(message, hint="make it first, or name another file with `-o`")
    with at.open() as project:
        reports.write(project.db, output, title or f"What ran in {project.root.name}")
    return Answer({"path": str(output.absolute())}, (line(str(output)),), (str(output),))
