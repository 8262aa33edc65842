"""Dispatch of queued tasks: each gets an attempt, which is a job.

That is one transaction, or two if data has to be prepared in between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from pilotage.base import crash, errors
from pilotage.edge import view
from pilotage.flow import moves, records, step_job
from pilotage.flow import sites as flow_sites
from pilotage.flow.model import Step, Way
from pilotage.flow.orders import PlacedOrder, PreparedData, Unfit, make_order, start_child
from pilotage.flow.orders import TaskOrder as Asked
from pilotage.flow.sites import CandidateSite, Choice
from pilotage.job import moves as job_moves
from pilotage.job import records as jobs
from pilotage.match import sites
from pilotage.store import Db

#: Tasks dispatched in one transaction.
AT_ONCE = 500
#: Seconds until a task is retried that could not be dispatched.
_LATER_S = 5.0
_NO_RECIPE = (
    "a recipe runs at this hub or at a site of its project, and `{}` is none: an application can "
    "run there"
)


class HubCapabilities(msgspec.Struct, frozen=True):
    """The sites and applications that this hub has itself."""

    #: Sites of this project, which the hub reaches itself.
    local: frozenset[str] = frozenset()
    #: Applications of this hub.
    apps: frozenset[str] = frozenset()


class Dispatched(msgspec.Struct, frozen=True):
    """The outcome of one dispatch."""

    #: Tasks whose data has to be prepared first.
    orders: tuple[PlacedOrder, ...] = ()
    #: Attempts that were made.
    made: int = 0
    #: Whether there may be more.
    more: bool = False


def any_new(db: Db, busy: Collection[int], now: float) -> bool:
    """Return whether tasks are due that are not `busy`."""
    return any(task not in busy for task in records.queued(db, now, 1 + len(busy)))


def look(db: Db, world: HubCapabilities, busy: Collection[int], now: float) -> Dispatched:
    """Dispatch tasks that need no data, and return those that do; skip tasks that are `busy`."""
    found = records.queued(db, now, AT_ONCE + len(busy))
    tasks = [task for task in found if task not in busy][:AT_ONCE]
    sites = SiteChooser(db, world, now)
    orders: list[PlacedOrder] = []
    ready: list[tuple[PlacedOrder, PreparedData]] = []
    for task in tasks:
        asked = make_order(db, task, now)
        if asked is None:
            continue
        if asked.definition.flow is not None:
            start_child(db, task, now)
            continue
        order = _placed(db, asked, sites, world, now)
        if order is None:
            continue
        if needs_data(order.definition):
            orders.append(order)
        else:
            ready.append((order, PreparedData()))
    return Dispatched(tuple(orders), send(db, ready, now), len(tasks) == AT_ONCE)


def send(db: Db, ready: Sequence[tuple[PlacedOrder, PreparedData]], now: float) -> int:
    """Make attempts of tasks whose data is ready; return how many."""
    made = 0
    for order, prepared in ready:
        facts = records.task(db, order.task)
        if facts.state != "queued" or facts.attempt + 1 != order.number:
            # It was cancelled or dispatched meanwhile.
            continue
        try:
            _attempt(db, order, prepared, now)
            made += 1
        except Unfit as error:
            moves.give_up(db, order.task, error.reason, now)
    if made:
        crash.point("flow.chosen")
    return made


def _attempt(db: Db, order: PlacedOrder, prepared: PreparedData, now: float) -> None:
    new = step_job.make_job(order, prepared)
    number = jobs.add(db, new, now)
    if number is None:
        raise Unfit(f"a job with the key {new.key} exists already")
    moves.attempt(db, order.task, order.way, order.site, prepared.place, now, job=number)
    reason = _refusal(db, order.site, order.definition, now) if order.way == "edge" else ""
    if reason:
        job_moves.reject(db, number, reason, now=now)


def _refusal(db: Db, site: str, step: Step, now: float) -> str:
    """Return why a site with an agent will not take a step; empty if it may.

    A site that has not reported yet may have the application: see `step_job.FlowSteps.offered`.
    """
    app, named = flow_sites.application(step)
    found = view.offering(db, site).object(site, app, named=named)
    return sites.sentence(found, now) if found is not None and found.final else ""


def needs_data(step: Step) -> bool:
    """Return whether a task has inputs or outputs to transfer."""
    return bool(step.inputs or step.outputs or step.result)


def _placed(
    db: Db, asked: Asked, sites: SiteChooser, world: HubCapabilities, now: float
) -> PlacedOrder | None:
    """Return where a task goes; nothing if that is unknown now, or the task fails."""
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
    return PlacedOrder(**_fields(asked), way=way, site=choice.site)


def _fields(asked: Asked) -> dict[str, Any]:
    return {name: getattr(asked, name) for name in Asked.__struct_fields__}


def _way(step: Step, site: str, world: HubCapabilities) -> Way:
    here = step.recipe or site in world.local or _own(step, world)
    return "here" if here else "edge"


def _own(step: Step, world: HubCapabilities) -> bool:
    """Return whether a step without a site is one of an application of this hub."""
    return not step.sites and not step.requirements and step.application in world.apps


class SiteChooser:
    """Chooses sites of tasks; their states are read at first use."""

    def __init__(self, db: Db, world: HubCapabilities, now: float) -> None:
        """Take the store and what this hub has itself."""
        self._db, self._world, self._now = db, world, now
        self._known: dict[str, CandidateSite] | None = None

    def choose(self, asked: Asked) -> Choice:
        """Choose the site of a task; none is needed for what runs at this hub."""
        step, world = asked.definition, self._world
        if not step.sites and (step.recipe or _own(step, world)):
            return Choice()
        if len(step.sites) == 1 and not step.requirements:
            # In whatever state the site is, the task waits there.
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
    """Read the states of sites with an agent, and the number of our jobs there."""
    ours: Mapping[str, int] = dict(db.rows("flows_live_at"))
    return {
        one.name: CandidateSite(
            one.name, one.state, max(one.live, ours.get(one.name, 0)), one.batch, one.disk_free
        )
        for one in view.look(db, now).edges
    }
