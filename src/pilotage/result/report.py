"""What ran in a project, as one HTML file: no script, no other file, fit for screen and paper."""

from __future__ import annotations

import datetime as dt
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from pilotage import text, units
from pilotage.job.model import State
from pilotage.result import gallery, lineage, timeline
from pilotage.rule import layout
from pilotage.store import Db

#: Jobs in the time line, lines in the table of jobs, failures told in full, last lines of each.
MOST_BARS, MOST_LINES, MOST_FAILURES, TAIL = 4000, 400, 12, 20
_TAIL_BYTES = 16_384
_WIDTH = re.compile(r'viewBox="0 0 ([\d.]+) ')
_TROUBLE = (State.FAILED, State.REJECTED, State.HELD, State.CANCELLED)


class Drawn(NamedTuple):
    """A graph and its natural width in pixels."""

    svg: Markup
    width: float


class Failure(NamedTuple):
    """A job that did not end well, with its last words."""

    job: lineage.Ran
    trigger: str
    stderr: str


class Totals(NamedTuple):
    """All jobs in a few figures."""

    states: dict[State, int]
    begin: float
    end: float
    cpu: float
    memory: int | None

    @property
    def jobs(self) -> int:
        """Jobs in all."""
        return sum(self.states.values())


def write(project_db: Db, out: Path, title: str, lead_html: str | None = None) -> None:
    """Write the report of a project; `lead_html` is trusted and stands on top."""
    page = render(project_db, title, lead_html)
    handle, hidden = tempfile.mkstemp(prefix=f".{out.name}.", dir=out.parent)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(page)
    os.chmod(hidden, 0o644)
    os.replace(hidden, out)


def render(db: Db, title: str, lead_html: str | None = None) -> str:
    """Return the report of a project."""
    root = db.path.parent.parent
    base = str(root)
    totals = read_totals(db)
    jobs = lineage.read(db, MOST_BARS)
    return template(
        "pilotage.result"
    ).render(
        title=title,
        project=root.name,
        lead=Markup(lead_html) if lead_html else None,  # noqa: S704 - the caller's own page
        facts=facts(totals),
        when=_when(totals),
        graph=_draw(lineage.by_rule(db, base), "The rules that ran"),
        every=_every(db, jobs, totals, base),
        timeline=Markup(timeline.svg(jobs, totals.end, base)),  # noqa: S704
        legend=timeline.colours(jobs),
        failed=timeline.FAILED if totals.states.get(State.FAILED) else "",
        bars=len(jobs),
        lines=[_line(job, base, totals.begin) for job in jobs[-MOST_LINES:]],
        total=totals.jobs,
        failures=read_failures(db, base),
        trouble=sum(totals.states.get(state, 0) for state in _TROUBLE),
        gallery=gallery.collect(db, base),
    )


def read_totals(db: Db) -> Totals:
    """Add up all jobs."""
    rows = db.rows("result_totals")
    peaks = [row[5] for row in rows if row[5] is not None]
    return Totals(
        states={State(row[0]): row[1] for row in rows},
        begin=min((row[2] for row in rows), default=0.0),
        end=max((row[3] for row in rows), default=0.0),
        cpu=sum(row[4] for row in rows),
        memory=max(peaks, default=None),
    )


def facts(totals: Totals) -> list[tuple[str, str, str]]:
    """Say the totals in a few words: what, how much, and how it looks."""
    span = totals.end - totals.begin
    found: list[tuple[str, str, str]] = [("jobs", _grouped(totals.jobs), "")]
    found += [(str(state), _grouped(count), state) for state, count in totals.states.items()]
    if totals.jobs:
        found += [
            ("from first to last", units.for_people(span), ""),
            ("processor time", units.for_people(totals.cpu), ""),
        ]
    if totals.memory:
        found.append(("largest memory", units.bytes_for_people(totals.memory), ""))
    return found


def _grouped(number: int) -> Markup:
    """Write a number with a narrow space before each three digits."""
    return Markup(f"{number:,}".replace(",", "&#8239;"))  # noqa: S704 - digits only


def read_failures(db: Db, base: str) -> list[Failure]:
    """Read the newest jobs that did not end well."""
    jobs = lineage.read(db, MOST_FAILURES, _TROUBLE)
    return [Failure(job, lineage.trigger(job, base), tail(job.dir)) for job in jobs]


def tail(folder: str) -> str:
    """Return the last lines that an attempt wrote to its standard error."""
    try:
        with open(os.path.join(folder, "stderr"), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            last = file.read().decode("utf-8", "surrogateescape").splitlines()[-TAIL:]
    except OSError:
        return ""
    return "\n".join(line.expandtabs(4) for line in last)


def _every(db: Db, jobs: Sequence[lineage.Ran], totals: Totals, base: str) -> Drawn | None:
    """Draw each job, if they are few and one caused another."""
    if totals.jobs > lineage.MOST_JOBS:
        return None
    picture = lineage.by_job(db, list(jobs), base)
    return _draw(picture, "Every job") if picture.edges else None


def _draw(picture: lineage.Picture, title: str) -> Drawn:
    drawn = layout.svg(picture.nodes, picture.edges, title=title)
    found = _WIDTH.search(drawn)
    return Drawn(Markup(drawn), float(found[1]) if found else 0.0)  # noqa: S704 - layout escapes


def _line(job: lineage.Ran, base: str, begin: float) -> dict[str, Any]:
    return {
        "id": job.id,
        "name": job.name,
        "trigger": lineage.trigger(job, base),
        "state": str(job.state),
        "start": "–" if job.started is None else f"{job.started - begin:.1f}",
        "wall": "–" if job.seconds is None else units.for_people(job.seconds),
        "cpu": "–" if job.cpu is None else units.for_people(job.cpu),
        "memory": "–" if job.memory is None else units.bytes_for_people(job.memory),
        "attempt": job.attempt,
    }


def _when(totals: Totals) -> str:
    if not totals.jobs:
        return "nothing has run yet"
    begin, end = (dt.datetime.fromtimestamp(at, dt.UTC) for at in (totals.begin, totals.end))
    last = f"{end:%H:%M:%S}" if begin.date() == end.date() else f"{end:%-d %B %Y, %H:%M:%S}"
    return f"{begin:%-d %B %Y, %H:%M:%S} to {last} UTC"


def template(package: str) -> jinja2.Template:
    """Find the report of a package."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package, "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
    )
    return environment.get_template("report.html")


def _printable(value: object) -> object:
    """Escape what cannot be shown in text; what is markup already was made from such text."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "\n".join(text.show(line) for line in value.split("\n"))
