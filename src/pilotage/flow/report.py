"""How a flow went, as one HTML file: no script, no other file, fit for screen and paper."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from pilotage import text, units
from pilotage.flow import detail, lanes, look, picture, sketch, why
from pilotage.flow.detail import Task
from pilotage.flow.lanes import Bar
from pilotage.flow.look import Sheet, StepRow
from pilotage.result import timeline
from pilotage.result.report import template
from pilotage.store import Db

#: Attempts in the time line, failures told in full, lines of the story.
MOST_BARS, MOST_FAILURES, MOST_LINES = 4000, 20, 200
_BAD = ("failed", "rejected", "lost", "cancelled")


class Failure(NamedTuple):
    """An attempt that did not end well."""

    step: str
    number: int
    state: str
    site: str
    reason: str
    kind: str
    #: Whether the task was done after all.
    mended: bool


class Moved(NamedTuple):
    """Bytes that steps at one site read of steps at another."""

    source: str
    target: str
    bytes: int


def render(db: Db, number: int, now: float, title: str = "") -> str:
    """Return the report of a flow."""
    found = look.sheet(db, number)
    steps = why.steps(found.steps, found.open, {}, now)
    tasks = detail.all_tasks(db, number, MOST_BARS)
    drawn = picture.draw(steps)
    name = title or f"{found.row.name}, flow {number}"
    paint = lanes.colours(one.name for one in steps if one.attempts)
    bars = _bars(tasks, found, now)
    failures = _failures(tasks, found)
    return template("pilotage.flow").render(
        title=name,
        flow=found.row,
        about=found.flow.description,
        facts=_facts(found, now),
        when=_when(found, now),
        params=[(key, _plain(value)) for key, value in found.flow.params.items()],
        graph=Markup(sketch.as_svg(drawn, name, now)),  # noqa: S704 - all text is escaped there
        width=drawn.width,
        timeline=Markup(lanes.svg(bars, paint)),  # noqa: S704 - so it is there
        legend=paint if len(paint) <= 12 else {},
        failed=timeline.FAILED if any(bar.bad for bar in bars) else "",
        bars=len(bars),
        attempts=sum(one.attempts for one in steps),
        steps=[_step(one, now) for one in steps],
        each=any(one.each for one in steps),
        moved=[(one, units.bytes_for_people(one.bytes)) for one in moved(found)],
        failures=failures[:MOST_FAILURES],
        trouble=len(failures),
        story=[(_clock(one.time), one) for one in
               reversed(detail.story(db, number, most=MOST_LINES))],
    )  # fmt: skip


def moved(found: Sheet) -> list[Moved]:
    """Add up what went from site to site.

    What an attempt has read is known as a whole; it is shared out among the steps that it reads
    from by what those left, which is exact if those were at one site.
    """
    totals: dict[tuple[str, str], float] = {}
    for name, works in found.works.items():
        asked = found.flow.steps.get(name)
        sources: dict[str, int] = {}
        for take in asked.inputs if asked else ():
            for work in found.works.get(take.step, ()) if take.step else ():
                place = look.place(work.way, work.site)
                sources[place] = sources.get(place, 0) + work.bytes
        outside = any(take.url for take in asked.inputs) if asked else False
        for work in works:
            if work.read:
                _share(totals, sources, outside, look.place(work.way, work.site), work.read)
    found_all = [Moved(source, target, round(count)) for (source, target), count in totals.items()]
    return sorted((one for one in found_all if one.bytes), key=lambda one: -one.bytes)


def _share(
    totals: dict[tuple[str, str], float],
    sources: Mapping[str, int],
    outside: bool,  # noqa: FBT001 - one of two kinds of sources
    target: str,
    count: int,
) -> None:
    known = sum(sources.values())
    rest = max(0.0, count - known) if outside else 0.0
    if not known:
        rest = count
    for source, size in sources.items():
        if known:
            key = (source, target)
            totals[key] = totals.get(key, 0.0) + (count - rest) * size / known
    if rest:
        key = ("outside", target)
        totals[key] = totals.get(key, 0.0) + rest


def _bars(tasks: Sequence[Task], found: Sheet, now: float) -> list[Bar]:
    bars = []
    for task in tasks:
        for one in task.attempts:
            start = one.started or one.created
            end = max(start, one.ended or now)
            place = look.place(one.way, one.site)
            words = (
                f"{_title(task, found)}, attempt {one.number} at {place}: {one.state}, "
                f"{units.for_people(end - start)}"
            )
            bars.append(Bar(place, task.step, words, start, end, one.state in _BAD))
    return bars[:MOST_BARS]


def _title(task: Task, found: Sheet) -> str:
    asked = found.flow.steps.get(task.step)
    return f"{task.step} {task.item}" if asked and asked.each is not None else task.step


def _failures(tasks: Sequence[Task], found: Sheet) -> list[Failure]:
    return [
        Failure(
            _title(task, found), one.number, one.state, look.place(one.way, one.site),
            one.reason or task.reason, one.kind, task.state == "done",
        )
        for task in tasks
        for one in task.attempts
        if one.state in _BAD
    ]  # fmt: skip


def _facts(found: Sheet, now: float) -> list[tuple[str, str, str]]:
    row, steps = found.row, found.steps
    sites = {look.place(work.way, work.site) for works in found.works.values() for work in works}
    facts = [
        ("state", row.state.replace("_", " "), row.state),
        ("steps", str(len(steps)), ""),
        ("tasks", f"{sum(one.total for one in steps):,}".replace(",", "\u202f"), ""),
        ("attempts", f"{sum(one.attempts for one in steps):,}".replace(",", "\u202f"), ""),
        ("sites", str(len(sites)), ""),
        ("time", units.for_people(max(0.0, (row.ended or now) - row.created)), ""),
        ("left", units.bytes_for_people(sum(one.bytes for one in steps)), ""),
        ("read", units.bytes_for_people(sum(one.read for one in steps)), ""),
    ]
    return [(name, value, kind) for name, value, kind in facts if value not in ("0", "0 B")]


def _step(one: StepRow, now: float) -> dict[str, Any]:
    seconds = one.seconds(now)
    return {
        "name": one.name,
        "state": one.state,
        "tasks": f"{one.done}/{one.total}" if one.each else "",
        "sites": ", ".join(one.sites),
        "runs": one.runs,
        "attempts": one.attempts or "",
        "time": "–" if seconds is None else units.for_people(seconds),
        "left": units.bytes_for_people(one.bytes) if one.bytes else "–",
        "read": units.bytes_for_people(one.read) if one.read else "–",
        "why": one.why,
    }


def _plain(value: Any) -> str:  # noqa: ANN401 - any JSON value
    return value if isinstance(value, str) else text.dump(value)


def _clock(at: float) -> str:
    return f"{dt.datetime.fromtimestamp(at, dt.UTC):%Y-%m-%d %H:%M:%S}"


def _when(found: Sheet, now: float) -> str:
    row = found.row
    last = _clock(row.ended) if row.ended else f"{_clock(now)}, when it was not over"
    return f"{_clock(row.created)} to {last}, UTC"
