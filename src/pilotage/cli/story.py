"""`pilotage story`: the history of jobs, from event to result."""

from __future__ import annotations

from typing import Any

import msgspec

from pilotage.base import text, units
from pilotage.cli import formatting, job_selector, job_table
from pilotage.cli.answer import Answer, Shown, Styled, line
from pilotage.cli.common import HERE, Common
from pilotage.cli.verbs import Selectors
from pilotage.match.where import JobPlace
from pilotage.result import story as stories
from pilotage.result.story import Story


def story(selector: Selectors, /, *, at: Common = HERE) -> Answer:
    """Show the history of jobs, from event to result."""
    with at.open() as project:
        found = [stories.tell(project.db, one) for one in job_selector.numbers(project, selector)]
        where = job_table.where(project.db, [one.job for one in found])
    shown: list[Shown] = []
    for one in found:
        shown += [*([""] if shown else []), *_sheet(one)]
    return Answer(
        {"jobs": [_data(one, where.get(one.job.id)) for one in found]},
        tuple(shown),
        tuple(one.job.id for one in found),
    )


def _data(found: Story, place: JobPlace | None) -> dict[str, Any]:
    moments = [
        {
            "time": formatting.stamp(one.time),
            "what": one.what,
            "details": one.details,
            "state": one.state,
        }
        for one in found.moments
    ]
    children = msgspec.to_builtins(found.children)
    facts = {"moments": moments, "outputs": found.outputs, "children": children}
    return job_table.job(found.job, place) | facts


def _sheet(found: Story) -> list[Shown]:
    job = found.job
    head = line(Styled(f"job {job.id}", "bold"), f"  {job.name}  ", formatting.state(job.state))
    parts: list[Shown] = [head]
    before = None
    for one in found.moments:
        after = "" if before is None else f"+{units.for_people(max(0.0, one.time - before))}"
        before = one.time if before is None else before
        style = formatting.STYLES.get(one.state, "")
        parts.append(
            line(
                Styled(f"{formatting.clock(one.time)} {after:>12}  ", "dim"),
                Styled(text.show(one.what), style),
            )
        )
        parts += [f"{'':34}{text.show(detail)}" for detail in one.details]
    parts += [line(Styled(f"{'writes':>32}  ", "dim"), text.show(path)) for path in found.outputs]
    for child in found.children:
        words = f"job {child.id} {child.name}  "
        parts.append(line(Styled(f"{'caused':>32}  ", "dim"), words, formatting.state(child.state)))
    return parts
