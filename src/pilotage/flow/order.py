"""What a task asks for when it is about to be sent: nothing is left open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pilotage.base import errors, text
from pilotage.edge.handoff import Take
from pilotage.flow import check, definition, policy
from pilotage.flow.ends import give_up
from pilotage.flow.model import Step
from pilotage.flow.records import Source, sources
from pilotage.flow.template import fill, line
from pilotage.flow.values import Values
from pilotage.job.model import Limit
from pilotage.job.template import write

if TYPE_CHECKING:
    from collections.abc import Callable

    from pilotage.store import Db

#: The parts of a recipe that are templates; the text of a script is none.
_ARGUMENTS = ("argv", "args")


class Feed(msgspec.Struct, frozen=True):
    """An input and where it comes from: nowhere, if it is a URL or its step was skipped."""

    take: Take
    sources: tuple[Source, ...]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A task that is about to be sent somewhere: its next attempt, with nothing left open."""

    flow: int
    #: The name of the flow, whose it is, and its tag.
    name: str
    owner: str
    tag: str
    step: str
    task: int
    #: Its place in the list that the step goes through, and its value there.
    item: int
    value: Any
    #: The number of the attempt, and what the site will know it by.
    number: int
    key: str
    #: The step with all templates filled; its `sites` are those that are left, the best first.
    definition: Step
    #: Sites that it is not to go to, where any may be chosen.
    avoid: tuple[str, ...]
    inputs: tuple[Feed, ...]


def order(db: Db, task: int, now: float) -> Order | None:
    """Say what a task that is queued asks for; nothing if it is not, or fails since it cannot be.

    A name that stands for nothing is the failure of the task, and its reason.
    """
    facts = db.row("flow_task_facts", task=task)
    if facts is None or facts[3] != "queued":
        return None
    flow, name, item, _, last, _ = facts
    head = definition.head(db, flow)
    value = text.load(db.value("flow_task_value", task=task))
    look = Values(db, head, item=value, index=item, attempt=last + 1).look
    tried = [policy.Tried(*row) for row in db.rows("flow_attempts_sites", task=task)]
    try:
        step = _filled(definition.step(db, flow, name), look)
        check.named(step)
        # None would mean any site.
        sites = policy.candidates(step, step.sites, tried) if step.sites else ()
        if step.sites and not sites:
            raise errors.BadFlow(f"refused by {' and by '.join(step.sites)}")
    except errors.BadRule as error:
        give_up(db, task, f"{error.message}; {error.hint}" if error.hint else error.message, now)
        return None
    return Order(
        flow=flow,
        name=head.name,
        owner=head.owner,
        tag=head.tag,
        step=name,
        task=task,
        item=item,
        value=value,
        number=last + 1,
        key=f"flow.{flow}.{task}.{last + 1}",
        definition=msgspec.structs.replace(step, sites=sites),
        avoid=policy.avoid(step, tried),
        inputs=tuple(
            Feed(take, tuple(sources(db, flow, take)) if take.step else ()) for take in step.inputs
        ),
    )


def _filled(step: Step, look: Callable[[str], Any]) -> Step:
    """Fill the templates of a step."""
    return msgspec.structs.replace(
        step,
        sites=tuple(site for site in _lines(step.sites, look) if site),
        application=line(step.application, look),
        parameters=fill(step.parameters, look),
        recipe=_recipe(step.recipe, look),
        env={key: line(value, look) for key, value in step.env.items()},
        config=line(step.config, look),
        inputs=tuple(one for take in step.inputs for one in _takes(take, look)),
        outputs=_lines(step.outputs, look),
        result=line(step.result, look),
        limit=_limit(step.limit, look),
        queue=line(step.queue, look),
        project=line(step.project, look),
        options=_lines(step.options, look),
    )


def _limit(limit: Limit | None, look: Callable[[str], Any]) -> Limit | None:
    return None if limit is None else Limit(line(limit.key, look), limit.most)


def _takes(take: Take, look: Callable[[str], Any]) -> list[Take]:
    """Fill an input; one that is a list of files or URLs becomes many."""
    found = fill(take.url, look)
    return [
        Take(take.step, line(take.output, look), write(url), line(take.path, look), take.sha256)
        for url in (found if isinstance(found, list | tuple) else (found,))
    ]


def _lines(parts: tuple[str, ...], look: Callable[[str], Any]) -> tuple[str, ...]:
    return tuple(line(part, look) for part in parts)


def _recipe(recipe: dict[str, Any], look: Callable[[str], Any]) -> dict[str, Any]:
    """Fill the arguments of a recipe; one that is a list becomes many."""
    found = dict(recipe)
    for name in _ARGUMENTS:
        if name in recipe:
            parts = (fill(part, look) for part in recipe[name])
            found[name] = [
                write(one)
                for part in parts
                for one in (part if isinstance(part, list | tuple) else (part,))
            ]
    return found
