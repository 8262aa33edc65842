"""`pilotage site control`: control jobs at a site, or the site, by the broker."""

from __future__ import annotations

from typing import Annotated, Any, get_args

import anyio
import msgspec
from cyclopts import Parameter

from pilotage.base import errors, text, units
from pilotage.bus import wire
from pilotage.bus.fields import Verb
from pilotage.bus.model import Answer as Told
from pilotage.bus.model import Control, Result
from pilotage.cli import formatting
from pilotage.cli.answer import Answer, Cell, Shown, Styled, Table, columns, line
from pilotage.cli.common import HERE, Common
from pilotage.cli.site_send import unheard
from pilotage.edge import broker
from pilotage.hub.project import Project

_HEADS = columns("JOB> KEY STATE ABOUT")
_VERBS = ", ".join(get_args(Verb))
_LATER = "it is done when the agent is back: `pilotage site show {site}` says how it is"


def control(
    site: Annotated[str, Parameter(help="Name of the site.")],
    verb: Annotated[Verb, Parameter(help=f"What to do: {_VERBS}.")],
    /,
    *,
    job: Annotated[
        tuple[int, ...], Parameter(help="Number of a job at the site; repeatable.")
    ] = (),
    key: Annotated[tuple[str, ...], Parameter(help="Key of a job; repeatable.")] = (),
    reason: Annotated[str, Parameter(help="Why, for the story of the job.")] = "",
    within: Annotated[str, Parameter(help="How long to wait for the answer, else 30s.")] = "30s",
    topic: Annotated[
        str, Parameter(help="Topic that the site reads, if it is not the usual one.")
    ] = "",
    at: Common = HERE,
) -> Answer:  # fmt: skip
    """Control jobs at a site, or drain and resume the site."""
    asked = Control(site=site, verb=verb, jobs=job, keys=key, reason=reason)
    _check(asked)
    patience = units.seconds(within)
    with at.open() as project:
        told = anyio.run(_ask, project, asked, topic or f"control.{site}", patience)
    good = told.ok and all(one.ok for one in told.results)
    notes = ("there are more jobs than fit into one answer",) if told.more else ()
    facts: dict[str, Any] = msgspec.to_builtins(told) | {"time": formatting.stamp(told.time)}
    ids = tuple(one.job for one in told.results)
    return Answer(facts, tuple(_shown(told)), ids, notes, status=int(not good))


def _check(asked: Control) -> None:
    try:
        wire.decode(wire.encode(asked))
    except errors.BadMessage as error:
        hint = "name jobs: `--job NUMBER` or `--key KEY`" if error.field == "jobs" else error.hint
        raise errors.BadMessage(str(error), hint=hint, field=error.field) from None


async def _ask(project: Project, asked: Control, topic: str, patience: float) -> Told:
    async with broker.connect(project.settings.bus, project.root) as bus:
        try:
            body = await bus.request(topic, wire.encode(asked), patience)
        except errors.TimedOut as error:
            if bus.trouble:
                raise unheard(errors.Unavailable(bus.trouble), asked.site, bus.trouble) from None
            hint = _LATER.format(site=asked.site)
            raise errors.TimedOut(str(error), hint=hint) from None
        except errors.Unavailable as error:
            raise unheard(error, asked.site, bus.trouble) from None
    found = wire.decode(body)
    if not isinstance(found, Told) or found.site != asked.site:
        raise errors.Unavailable(f"{asked.site} sent an invalid answer")
    return found


def _shown(told: Told) -> list[Shown]:
    if not told.ok:
        return [line(Styled("refused: ", "red"), text.show(told.text))]
    shown: list[Shown] = []
    if not told.results:
        words = "takes no more jobs" if told.draining else "takes jobs"
        shown.append(line(Styled(told.site, "bold"), f" {words}"))
    if told.counts:
        shown.append(", ".join(f"{n} {word.replace('_', ' ')}" for word, n in told.counts.items()))
    if told.results:
        shown.append(Table(_HEADS, tuple(_row(one) for one in told.results)))
    return shown


def _row(one: Result) -> tuple[Cell, ...]:
    about: Cell = one.text if one.ok else Styled(one.text, "red")
    return one.job or "", one.key, formatting.state(one.state), about
