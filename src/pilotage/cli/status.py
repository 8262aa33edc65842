"""`pilotage status`: running, finished and failed jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any

from cyclopts import Parameter

from pilotage.cli import formatting, job_counts, job_selector, job_table
from pilotage.cli.answer import Answer, Cell, Column, Shown, Styled, Table, line
from pilotage.cli.common import HERE, Common
from pilotage.hub.project import Project
from pilotage.job.machine import FINAL
from pilotage.job.model import Job, State
from pilotage.job.records import Selection
from pilotage.match import queued
from pilotage.match.where import JobPlace
from pilotage.status import explain, offers

_FEW = 5
_TROUBLE = (State.FAILED, State.REJECTED, State.HELD)


def status(
    selector: Annotated[tuple[str, ...], Parameter(help=job_selector.HELP)] = (),
    /,
    *,
    at: Common = HERE,
) -> Answer:
    """Show running, finished and failed jobs, and what to do."""
    with at.open() as project:
        now = project.clock.now()
        if selector:
            found = [project.job(one) for one in job_selector.numbers(project, selector)]
            counts = _count(found)
            trouble = [one for one in found if one.state in _TROUBLE]
        else:
            counts = job_counts.by_name(project.db.rows("job_counts"))
            trouble = project.jobs(Selection(states=_TROUBLE, most=_FEW))
        running, rules = project.running(), _rules(project)
        scene = offers.read(project.db, project.settings, now=now, running=running, room=False)
        stuck = explain.hopeless(project.db, scene, project.root, now)
        where = job_table.where(project.db, trouble)
    totals = Counter[str]()
    for states in counts.values():
        totals.update(states)
    data: dict[str, Any] = {
        "project": str(project.root),
        "running": running,
        "rules": rules,
        "jobs": {state: totals.get(state, 0) for state in State},
        "names": [{"name": name, **states} for name, states in counts.items()],
        "trouble": [job_table.job(one, where.get(one.id)) for one in trouble],
    }
    data["hopeless"] = [{"id": one, "jobs": count, "reason": why} for one, count, why in stuck]
    head = _head(project, rules, totals, running=running)
    shown = (*head, *_table(counts), *_troubles(trouble, totals, now, where))
    hints = _hints(totals, trouble, rules, running=running)
    notes = [
        f"{formatting.count(count, 'job')} like {one} can never start on what is offered now: {why}"
        for one, count, why in stuck
    ]
    if totals[State.QUEUED] and not len(scene.offers):
        notes += [f"jobs wait, and {queued.NO_PLACES}", f"hint: {queued.ENROL}"]
    return Answer(data, shown, tuple(counts), (*notes, *hints))


def _rules(project: Project) -> dict[str, int]:
    found = project.db.rows("rule_list")
    enabled = sum(1 for row in found if row[4])
    return {"enabled": enabled, "disabled": len(found) - enabled}


def _count(found: Iterable[Job]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for one in found:
        states = counts.setdefault(one.name, {})
        states[one.state] = states.get(one.state, 0) + 1
    return counts


def _head(
    project: Project, rules: dict[str, int], totals: Counter[str], *, running: bool
) -> list[Shown]:
    runs = Styled("running", "green") if running else Styled("not running", "yellow")
    words = formatting.count(rules["enabled"], "rule")
    if rules["disabled"]:
        words += f" ({rules['disabled']} disabled)"
    left = sum(count for state, count in totals.items() if state not in FINAL)
    jobs = f"{formatting.count(sum(totals.values()), 'job')}, {left} not ended"
    return [
        line(Styled("project  ", "dim"), str(project.root), "  ", runs),
        line(Styled("rules    ", "dim"), words),
        line(Styled("jobs     ", "dim"), jobs),
    ]


def _table(counts: job_counts.Counts) -> list[Shown]:
    if not counts:
        return []
    used = [state for state in State if any(states.get(state) for states in counts.values())]
    heads = (
        Column("NAME"),
        *(Column(state.replace("_", " ").upper(), right=True) for state in used),
        Column("ALL", right=True),
    )
    rows = tuple(
        (name, *(_cell(state, states.get(state, 0)) for state in used), sum(states.values()))
        for name, states in counts.items()
    )
    return ["", Table(heads, rows)]


def _cell(state: State, count: int) -> Cell:
    return Styled(str(count), formatting.STYLES.get(state, "")) if count else Styled("·", "dim")


def _troubles(
    trouble: list[Job], totals: Counter[str], now: float, where: dict[int, JobPlace]
) -> list[Shown]:
    if not trouble:
        return []
    more = sum(totals[state] for state in _TROUBLE) - len(trouble[-_FEW:])
    rest: list[Shown] = [line(Styled(f"… and {more} more", "dim"))] if more > 0 else []
    return ["", job_table.jobs(trouble[-_FEW:], now, where), *rest]


def _hints(
    totals: Counter[str], trouble: list[Job], rules: dict[str, int], *, running: bool
) -> tuple[str, ...]:
    hints = []
    live = any(count and state not in FINAL for state, count in totals.items())
    if not running and (live or rules["enabled"]):
        hints.append("hint: `pilotage up` runs the project")
    failed = [one for one in trouble if one.state is not State.HELD]
    held = [one for one in trouble if one.state is State.HELD]
    if failed:
        hints.append(f"hint: `pilotage explain {failed[-1].id}` says what went wrong")
    if held:
        hints.append(f"hint: `pilotage release {held[-1].id}` releases a held job")
    if not totals and not rules["enabled"]:
        hints.append("hint: `pilotage submit echo hi` queues a first job")
    return tuple(hints)
