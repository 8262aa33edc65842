"""Tasks whose time has come get their attempts, each of which is a job.

All of it is one transaction, or two where data is to be got ready between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from pilotage.base import crash, errors
from pilotage.edge import view
from pilotage.flow import job, moves, records
from pilotage.flow import sites as flow_sites
from pilotage.flow.handoff import Order, Prepared, Unfit
from pilotage.flow.model import Step, Way
from pilotage.flow.order import Order as Asked
from pilotage.flow.sites import CandidateSite, Choice
from pilotage.job import moves as job_moves
from pilotage.job import records as jobs
from pilotage.match import sites
from pilotage.store import Db

#: Tasks that are sent in one transaction.
AT_ONCE = 500
#: Seconds until a task is looked at again that could not be sent.
_LATER_S = 5.0
_NO_RECIPE = (
    "a recipe runs at this hub or at a site of its project, and `{}` is none: an application can "
    "run there"
)


class World(msgspec.Struct, frozen=True):
    """What decides on ways beside the store."""

    #: SiteChooser of this project, which the hub reaches itself.
    local: frozenset[str] = frozenset()
    #: Applications of this hub.
    apps: frozenset[str] = frozenset()


class Sent(msgspec.Struct, frozen=True):
    """What came of a look at the tasks that are queued."""

    #: Those whose data is to be got ready first.
    orders: tuple[Order, ...] = ()
    #: Attempts that were made.
    made: int = 0
    #: Whether there may be more.
    more: bool = False


def any_new(db: Db, busy: Collection[int], now: float) -> bool:
    """Say whether tasks are due that are not `busy`."""
    return any(task not in busy for task in records.queued(db, now, 1 + len(busy)))


def look(db: Db, world: World, busy: Collection[int], now: float) -> Sent:
    """Send what needs no data, and say what does; tasks that are `busy` are left out."""
    found = records.queued(db, now, AT_ONCE + len(busy))
    tasks = [task for task in found if task not in busy][:AT_ONCE]
    sites = SiteChooser(db, world, now)
    orders: list[Order] = []
    ready: list[tuple[Order, Prepared]] = []
    for task in tasks:
        asked = moves.order(db, task, now)
        if asked is None:
            continue
        if asked.definition.flow is not None:
            moves.within(db, task, now)
            continue
        order = _placed(db, asked, sites, world, now)
        if order is None:
            continue
        if needs_data(order.definition):
            orders.append(order)
        else:
            ready.append((order, Prepared()))
    return Sent(tuple(orders), send(db, ready, now), len(tasks) == AT_ONCE)


def send(db: Db, ready: Sequence[tuple[Order, Prepared]], now: float) -> int:
    """Make attempts of tasks whose data is ready; return how many."""
    made = 0
    for order, prepared in ready:
        facts = records.task(db, order.task)
        if facts.state != "queued" or facts.attempt + 1 != order.number:
            # It was called off or sent meanwhile.
            continue
        try:
            _attempt(db, order, prepared, now)
            made += 1
        except Unfit as error:
            moves.give_up(db, order.task, error.reason, now)
    if made:
        crash.point("flow.chosen")
    return made


def _attempt(db: Db, order: Order, prepared: Prepared, now: float) -> None:
    new = job.job(order, prepared)
    number = jobs.add(db, new, now)
    if number is None:
        raise Unfit(f"a job with the key {new.key} exists already")
    moves.attempt(db, order.task, order.way, order.site, prepared.place, now, job=number)
    reason = _refusal(db, order.site, order.definition, now) if order.way == "edge" else ""
    if reason:
        job_moves.reject(db, number, reason, now=now)


def _refusal(db: Db, site: str, step: Step, now: float) -> str:
    """Say why a site with an agent will not take a step; empty if it may.

    A site that was not heard of yet may have the application: see `heard.FlowSteps.offered`.
    """
    app, named = flow_sites.application(step)
    found = view.offering(db, site).object(site, app, named=named)
    return sites.sentence(found, now) if found is not None and found.final else ""


def needs_data(step: Step) -> bool:
    """Say whether anything is brought to a task or from it."""
    return bool(step.inputs or step.outputs or step.result)


def _placed(db: Db, asked: Asked, sites: SiteChooser, world: World, now: float) -> Order | None:
    """Say where a task goes; nothing if that is not known now, or it fails."""
    step = asked.definition
    try:
        choice = sites.choose(asked)
        if step.recipe and choice.site and choice.site not in world.local:
            raise Unfit(_refusal(db, choice.site, step, now) or _NO_RECIPE.format(choice.site))
        way = _way(step, choice.site, world)
    except (Unfit, errors.PilotageError) as error:
        reason = error.reason if isinstance(error, Unfit) else str(error)
        moves.give_up(db, asked.task, reason, now)
        return None
    if choice.reason:
        moves.postpone(db, asked.task, choice.reason, now + _LATER_S)
        return None
    return Order(**_fields(asked), way=way, site=choice.site)


def _fields(asked: Asked) -> dict[str, Any]:
    return {name: getattr(asked, name) for name in Asked.__struct_fields__}


def _way(step: Step, site: str, world: World) -> Way:
    here = step.recipe or site in world.local or _own(step, world)
    return "here" if here else "edge"


def _own(step: Step, world: World) -> bool:
    """Say whether a step without a site is one of an application of this hub."""
    return not step.sites and not step.requirements and step.application in world.apps


class SiteChooser:
    """How sites are; read when it is first asked for."""

    def __init__(self, db: Db, world: World, now: float) -> None:
        """Know nothing yet."""
        self._db, self._world, self._now = db, world, now
        self._known: dict[str, CandidateSite] | None = None

    def choose(self, asked: Asked) -> Choice:
        """Choose the site of a task; none is needed for what runs at this hub."""
        step, world = asked.definition, self._world
        if not step.sites and (step.recipe or _own(step, world)):
            return Choice()
        if len(step.sites) == 1 and not step.requirements:
            # However it is, what is sent waits for it.
            return Choice(step.sites[0])
        known = self._all()
        found = flow_sites.choose(step.sites, step.requirements, known, asked.avoid)
        if found.site:
            one = known.get(found.site, CandidateSite(found.site))
            known[found.site] = msgspec.structs.replace(one, live=one.live + 1)
        return found

    def _all(self) -> dict[str, CandidateSite]:
        if self._known is None:
            self._known = _read(self._db, self._now)
            for name in self._world.local:
                self._known.setdefault(name, CandidateSite(name, "well"))
        return self._known


def _read(db: Db, now: float) -> dict[str, CandidateSite]:
    """Read how sites are that are heard of by the bus, and how much of ours is there."""
    ours: Mapping[str, int] = dict(db.rows("flows_live_at"))
    return {
        one.name: CandidateSite(
            one.name, one.state, max(one.live, ours.get(one.name, 0)), one.batch, one.disk_free
        )
        for one in view.look(db, now).edges
    }
