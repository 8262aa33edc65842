"""The report of a flow: its steps, where and when they ran, what failed and what data moved."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pilotage.base import text, units
from pilotage.draw import graph, page, svg, timeline
from pilotage.draw.page import Cell, Column, Fact, FailureEntry, Failures, Figure, Table
from pilotage.draw.timeline import TimeBar
from pilotage.flow import explain, picture, view
from pilotage.flow.view import FlowSheet, StepSummary, TaskDetail
from pilotage.store import Db

#: Attempts in the timeline, failures in full, lines of the story.
MOST_BARS, MOST_FAILURES, MOST_LINES = 4000, 20, 200
_BAD = ("failed", "rejected", "lost", "cancelled")


class Moved(NamedTuple):
    """Bytes that steps at one site read of steps at another."""

    source: str
    target: str
    bytes: int


def render(db: Db, number: int, now: float, title: str = "") -> str:
    """Return the report of a flow."""
    found = view.sheet(db, number)
    row = found.row
    name = title or f"{row.name}, flow {number}"
    cleared = " The data of this flow was removed since." if row.cleared else ""
    return page.render(
        page.Page(
            title=name,
            lead=_when(found, now),
            about=found.flow.description,
            reason=Cell(_words(row.reason), row.state) if row.reason else None,
            facts=_facts(found, now),
            sections=list(_sections(db, found, now, name)),
            foot=f"Written by Pilotage. Owner: {row.owner or 'none'}.{cleared}",
        )
    )


def _sections(db: Db, found: FlowSheet, now: float, name: str) -> Iterator[page.Section]:
    steps = explain.explain_steps(found.steps, found.open, {}, now)
    tasks = view.all_tasks(db, found.row.id, MOST_BARS)
    each = any(one.each for one in steps)
    caption = "Each box is a step: where it ran, how long it took and what it left."
    if each:
        caption += " A step that goes through a list shows how many of its tasks are over."
    drawn = graph.as_svg(picture.as_graph(picture.draw(steps), now), name)
    yield Figure(head="Steps", picture=drawn, caption=caption)
    if failures := _failures(tasks, found):
        shown = failures[:MOST_FAILURES]
        note = f"The first {len(shown)} of {len(failures)}." if len(shown) < len(failures) else ""
        yield Failures(head="What went wrong", failures=shown, note=note)
    if bars := _timeline(tasks, found, steps, now):
        yield bars
    yield _step_table(steps, now, each=each)
    if moves := moved(found):
        yield Table(
            head="What moved between sites", narrow=True,
            columns=(Column("From"), Column("To"), Column("Read", number=True)),
            rows=[(one.source, one.target, units.bytes_for_people(one.bytes)) for one in moves],
        )  # fmt: skip
    if params := found.flow.params:
        yield Table(
            head="Parameters", narrow=True, columns=(Column(""), Column("")),
            rows=[(key, _plain(value)) for key, value in params.items()],
        )  # fmt: skip
    if story := _story(db, found.row.id):
        yield Table(
            head="What happened", columns=(Column(""),) * 4, rows=story,
            fold=f"{len(story)} lines, the newest last",
        )  # fmt: skip


def moved(found: FlowSheet) -> list[Moved]:
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
                place = view.place(work.way, work.site)
                sources[place] = sources.get(place, 0) + work.bytes
        outside = any(take.url for take in asked.inputs) if asked else False
        for work in works:
            if work.read:
                _share(totals, sources, outside, view.place(work.way, work.site), work.read)
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


def _timeline(
    tasks: Sequence[TaskDetail], found: FlowSheet, steps: Sequence[StepSummary], now: float
) -> Figure | None:
    spans = []
    for task in tasks:
        for one in task.attempts:
            start = one.started or one.created
            end = max(start, one.ended or now)
            place = view.place(one.way, one.site)
            hint = (
                f"{_title(task, found)}, attempt {one.number} at {place}: {one.state}, "
                f"{units.for_people(end - start)}"
            )
            spans.append(TimeBar(place, task.step, start, end, hint, one.state in _BAD))
    shown, attempts = spans[:MOST_BARS], sum(one.attempts for one in steps)
    if not shown:
        return None
    colours = svg.palette(one.name for one in steps if one.attempts)
    return Figure(
        head="Where and when", picture=timeline.as_svg(shown, colours, "attempts"), stretch=True,
        legend=page.legend(colours, failed=any(span.failed for span in shown)),
        caption=f"The first {len(shown)} of {attempts} attempts." if len(shown) < attempts else "",
    )  # fmt: skip


def _title(task: TaskDetail, found: FlowSheet) -> str:
    asked = found.flow.steps.get(task.step)
    return f"{task.step} {task.item}" if asked and asked.each is not None else task.step


def _failures(tasks: Sequence[TaskDetail], found: FlowSheet) -> list[FailureEntry]:
    """Return all attempts that failed."""
    failures = []
    for task in tasks:
        for one in task.attempts:
            if one.state in _BAD:
                facts = (f"attempt {one.number}", view.place(one.way, one.site), one.kind)
                mended = "; done after all" if task.state == "done" else ""
                failures.append(
                    FailureEntry(
                        name=_title(task, found), state=one.state,
                        note=", ".join(filter(None, facts)) + mended,
                        reason=one.reason or task.reason,
                    )
                )  # fmt: skip
    return failures


def _facts(found: FlowSheet, now: float) -> list[Fact]:
    row, steps = found.row, found.steps
    sites = {view.place(work.way, work.site) for works in found.works.values() for work in works}
    facts = [
        Fact("state", row.state.replace("_", " "), row.state),
        Fact("steps", page.count(len(steps))),
        Fact("tasks", page.count(sum(one.total for one in steps))),
        Fact("attempts", page.count(sum(one.attempts for one in steps))),
        Fact("sites", str(len(sites))),
        Fact("time", units.for_people(max(0.0, (row.ended or now) - row.created))),
        Fact("left", units.bytes_for_people(sum(one.bytes for one in steps))),
        Fact("read", units.bytes_for_people(sum(one.read for one in steps))),
    ]
    return [fact for fact in facts if fact.value not in ("0", "0 B")]


def _step_table(steps: Sequence[StepSummary], now: float, *, each: bool) -> Table:
    rows: list[list[str | Cell]] = []
    for one in steps:
        seconds = one.seconds(now)
        rows.append([
            one.name,
            Cell(one.state.replace("_", " "), one.state),
            *([f"{one.done}/{one.total}" if one.each else ""] if each else []),
            one.runs,
            ", ".join(one.sites),
            str(one.attempts or ""),
            "–" if seconds is None else units.for_people(seconds),
            units.bytes_for_people(one.bytes) if one.bytes else "–",
            units.bytes_for_people(one.read) if one.read else "–",
            _words(one.why),
        ])  # fmt: skip
    columns = (
        Column("Step"), Column("State"), *([Column("Tasks", number=True)] if each else []),
        Column("Runs"), Column("Site"), Column("Attempts", number=True),
        Column("Time", number=True), Column("Left", number=True), Column("Read", number=True),
        Column("Why"),
    )  # fmt: skip
    return Table(head="Each step", columns=columns, rows=rows)


def _story(db: Db, number: int) -> list[list[str | Cell]]:
    """Return the newest lines of the story, the oldest of them first."""
    return [
        [
            Cell(_clock(one.time)),
            f"{one.step or 'flow'} #{one.number}" if one.number else one.step or "flow",
            Cell(one.state.replace("_", " "), one.state),
            one.words,
        ]
        for one in reversed(view.story(db, number, most=MOST_LINES))
    ]


def _words(value: str) -> str:
    return value.replace("`", "")


def _plain(value: Any) -> str:  # noqa: ANN401 - any JSON value
    return value if isinstance(value, str) else text.dump(value)


def _clock(at: float) -> str:
    return f"{dt.datetime.fromtimestamp(at, dt.UTC):%Y-%m-%d %H:%M:%S}"


def _when(found: FlowSheet, now: float) -> str:
    row = found.row
    last = _clock(row.ended) if row.ended else f"{_clock(now)}, still running"
    return f"{_clock(row.created)} to {last}, UTC"
