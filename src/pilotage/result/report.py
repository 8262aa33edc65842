"""The report of a project: what ran, what caused it, what failed and what came out."""

from __future__ import annotations

import base64
import datetime as dt
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pilotage.base import text, units
from pilotage.draw import graph, page, svg, timeline
from pilotage.draw.page import (
    Cell,
    Column,
    Fact,
    FailureEntry,
    Failures,
    Figure,
    Gallery,
    Image,
    Table,
)
from pilotage.draw.timeline import TimeBar
from pilotage.job.model import State
from pilotage.result import lineage
from pilotage.result.lineage import JobRun
from pilotage.store import Db

#: Jobs in the timeline, lines in the table of jobs, failures in full, last lines of each.
MOST_BARS, MOST_LINES, MOST_FAILURES, TAIL = 4000, 400, 12, 20
#: Images, bytes of one and bytes of all that a page carries.
MOST_IMAGES, LARGEST_IMAGE, ALL_IMAGES = 24, 1_500_000, 8_000_000
#: Images that every browser shows, by the ending of their names.
_TYPES = {
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
_PNG = b"\x89PNG\r\n\x1a\n"
_TAIL_BYTES = 16_384
_TROUBLE = (State.FAILED, State.REJECTED, State.HELD, State.CANCELLED)
_COLUMNS = (
    Column("job", number=True), Column("rule"), Column("made by"), Column("state"),
    Column("start (s)", number=True), Column("time", number=True),
    Column("processor", number=True), Column("memory", number=True),
)  # fmt: skip


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
    page.write(_page(project_db, title, lead_html), out)


def render(db: Db, title: str, lead_html: str | None = None) -> str:
    """Return the report of a project."""
    return page.render(_page(db, title, lead_html))


def _page(db: Db, title: str, lead_html: str | None) -> page.Page:
    root = db.path.parent.parent
    totals = read_totals(db)
    return page.Page(
        title=title,
        lead=f"{root.name} · {_when(totals)}",
        facts=list(_facts(totals)),
        sections=list(_sections(db, totals, str(root))) if totals.jobs else (),
        before=lead_html or "",
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


def _facts(totals: Totals) -> Iterator[Fact]:
    yield Fact("jobs", page.count(totals.jobs))
    for state, count in totals.states.items():
        yield Fact(str(state), page.count(count), state)
    if totals.jobs:
        yield Fact("from first to last", units.for_people(totals.end - totals.begin))
        yield Fact("processor time", units.for_people(totals.cpu))
    if totals.memory:
        yield Fact("largest memory", units.bytes_for_people(totals.memory))


def _when(totals: Totals) -> str:
    if not totals.jobs:
        return "nothing has run yet"
    begin, end = (dt.datetime.fromtimestamp(at, dt.UTC) for at in (totals.begin, totals.end))
    last = f"{end:%H:%M:%S}" if begin.date() == end.date() else f"{end:%-d %B %Y, %H:%M:%S}"
    return f"{begin:%-d %B %Y, %H:%M:%S} to {last} UTC"


def _sections(db: Db, totals: Totals, base: str) -> Iterator[page.Section]:
    jobs = lineage.read(db, MOST_BARS)
    yield Figure(
        head="What caused what",
        picture=graph.as_svg(lineage.by_rule(db, base), "The rules that ran"),
        caption="Each box is a rule with its jobs; the number on an arrow says how many of them "
        "led on.",
    )
    if failures := read_failures(db, base):
        trouble = sum(totals.states.get(state, 0) for state in _TROUBLE)
        yield Failures(
            head="What needs a look", failures=failures, note=_part("", len(failures), trouble)
        )
    if bars := _timeline(jobs, totals, base):
        yield bars
    if totals.jobs <= lineage.MOST_JOBS:
        every = lineage.by_job(db, jobs, base)
        if every.edges:
            yield Figure(
                head="Every job", picture=graph.as_svg(every, "Every job"),
                caption="Each box is a job with what made it; each arrow leads to what it caused.",
            )  # fmt: skip
    images = read_images(db, base)
    if images.images:
        yield images
    yield Table(
        head="Jobs", columns=_COLUMNS,
        rows=[_line(job, base, totals.begin) for job in jobs[-MOST_LINES:]],
        note=_part(" jobs", len(jobs[-MOST_LINES:]), totals.jobs),
    )  # fmt: skip


def _part(noun: str, shown: int, total: int) -> str:
    return f"The newest {shown} of {total}{noun}." if shown < total else ""


def read_failures(db: Db, base: str) -> list[FailureEntry]:
    """Read the newest jobs that did not end well, each with its last words."""
    return [
        FailureEntry(
            name=f"{job.name} {job.id}", state=job.state, note=lineage.trigger(job, base),
            reason=job.reason, output=_tail(job.dir),
        )
        for job in lineage.read(db, MOST_FAILURES, _TROUBLE)
    ]  # fmt: skip


def _tail(folder: str) -> str:
    """Return the last lines that an attempt wrote to its standard error."""
    try:
        with open(os.path.join(folder, "stderr"), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            last = file.read().decode("utf-8", "surrogateescape").splitlines()[-TAIL:]
    except OSError:
        return ""
    return "\n".join(line.expandtabs(4) for line in last)


def _timeline(jobs: Sequence[JobRun], totals: Totals, base: str) -> Figure | None:
    spans = []
    for job in jobs:
        if job.started is not None:
            end = max(job.ended if job.ended is not None else totals.end, job.started)
            hint = (
                f"{job.name} {job.id}, {lineage.trigger(job, base)}: {job.state}, "
                f"{units.for_people(end - job.started)}"
            )
            failed = job.state is State.FAILED
            spans.append(TimeBar("", job.name, job.started, end, hint, failed))
    if not spans:
        return None
    colours = svg.palette(span.name for span in spans)
    return Figure(
        head="Timeline", picture=timeline.as_svg(spans, colours, "jobs"), stretch=True,
        legend=page.legend(colours, failed=any(span.failed for span in spans)),
        caption=_part(" jobs", len(jobs), totals.jobs),
    )  # fmt: skip


def _line(job: JobRun, base: str, begin: float) -> list[str | Cell]:
    return [
        str(job.id),
        job.name,
        lineage.trigger(job, base),
        Cell(str(job.state), job.state, f"attempt {job.attempt}" if job.attempt > 1 else ""),
        "–" if job.started is None else f"{job.started - begin:.1f}",
        "–" if job.seconds is None else units.for_people(job.seconds),
        "–" if job.cpu is None else units.for_people(job.cpu),
        "–" if job.memory is None else units.bytes_for_people(job.memory),
    ]


# -- images ---------------------------------------------------------------------------------------


def read_images(db: Db, base: str) -> Gallery:
    """Read the images that jobs declared as outputs, folder by folder, as far as there is room."""
    images: list[Image] = []
    more, room = 0, ALL_IMAGES
    for path in sorted(_images(db.rows("result_outputs", first=0)), key=os.path.dirname):
        size = _size(path)
        if not size:
            continue
        if len(images) == MOST_IMAGES or size > min(LARGEST_IMAGE, room):
            more += 1
            continue
        content = _read(path)
        if not content or _is_data(content):
            continue
        room -= len(content)
        kind = _TYPES[os.path.splitext(path)[1].lower()]
        data = f"data:{kind};base64,{base64.b64encode(content).decode()}"
        images.append(Image(data, text.show(path.removeprefix(f"{base}/"))))
    note = f"{more} more are left out to keep this page small." if more else ""
    return Gallery(head="Images that jobs left", images=images, note=note)


def _images(rows: Iterable[tuple[str, int, str]]) -> Iterator[str]:
    for stored, _, _ in rows:
        path = text.load_path(stored)
        if os.path.splitext(path)[1].lower() in _TYPES:
            yield path


def _size(path: str) -> int:
    """Return the size of a file, or 0 if it is none or gone."""
    try:
        found = os.stat(path)
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def _read(path: str) -> bytes:
    """Return the content of a file, as far as a page has room for it."""
    try:
        with open(path, "rb") as file:
            return file.read(LARGEST_IMAGE)
    except OSError:
        return b""


def _is_data(content: bytes) -> bool:
    """Return whether it is a PNG with 16 bits of grey, which is data and looks black."""
    return content.startswith(_PNG) and content[24:26] == b"\x10\x00"
