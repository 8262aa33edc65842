"""Dispatch of queued tasks: each gets an attempt, which is a job.

That is one transaction, or two if data has to be prepared in between.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from pilotage.base import crash, errors, text
from pilotage.edge import view
from pilotage.flow import moves, records, step_job
from pilotage.flow import sites as flow_sites
from pilotage.flow.model import Step, Way
from pilotage.flow.orders import PlacedOrder, PreparedData, Unfit, make_orders, start_child
from pilotage.flow.orders import TaskOrder as Asked
from pilotage.flow.sites import CandidateSite, Choice
from pilotage.job import moves as job_moves
from pilotage.job import records as jobs
from pilotage.job.model import NewJob
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
    for asked in make_orders(db, tasks, now):
        if asked.definition.flow is not None:
            start_child(db, asked.task, now)
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
    if not ready:
        return 0
    rows = text.dump([(order.task, order.number) for order, _ in ready])
    current = {row[0] for row in db.rows("flow_tasks_current", rows=rows)}
    cause = functools.cache(functools.partial(_cause, db))
    found: list[tuple[PlacedOrder, PreparedData, NewJob]] = []
    for order, prepared in ready:
        if order.task not in current:
            # It was cancelled or dispatched meanwhile.
            continue
        try:
            new = step_job.make_job(order, prepared)
        except Unfit as error:
            moves.give_up(db, order.task, error.reason, now)
            continue
        parent, depth = cause(order.flow)
        if parent is not None:
            new = msgspec.structs.replace(new, parent=parent, depth=depth)
        found.append((order, prepared, new))
    made = _attempts(db, found, now) if found else 0
    if made:
        crash.point("flow.chosen")
    return made


def _cause(db: Db, flow: int) -> tuple[int | None, int]:
    """Return the job that a flow is, if any, and the depth of the jobs of its steps."""
    job, depth = db.row("flow_cause", flow=flow) or (None, -1)
    return job, depth + 1


def _attempts(
    db: Db, found: Sequence[tuple[PlacedOrder, PreparedData, NewJob]], now: float
) -> int:  # fmt: skip
    """Make attempts and their jobs; return how many."""
    numbers = jobs.add_steps(db, [new for _, _, new in found], now)
    refusal = functools.cache(functools.partial(_refusal, db, now=now))
    groups: dict[tuple[Way, str], list[tuple[int, int | None, str]]] = {}
    rejected: list[tuple[int, str]] = []
    for order, prepared, new in found:
        number = numbers.get(new.key)
        if number is None:
            reason = f"a job with the key {new.key} exists already"
            moves.give_up(db, order.task, reason, now)
            continue
        groups.setdefault((order.way, order.site), []).append((order.task, number, prepared.place))
        if order.way == "edge" and (
            reason := refusal(order.site, *flow_sites.application(order.definition))
        ):
            rejected.append((number, reason))
    for (way, site), rows in groups.items():
        moves.attempts(db, way, site, rows, now)
    for number, reason in rejected:
        job_moves.reject(db, number, reason, now=now)
    return sum(map(len, groups.values()))


def _refusal(db: Db, site: str, app: str, named: bool, now: float) -> str:  # noqa: FBT001 - cached
    """Return why a site with an agent will not take an application; empty if it may.

    A site that has not reported yet may have the application: see `step_job.FlowSteps.offered`.
    """
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
            why = _refusal(db, choice.site, *flow_sites.application(step), now=now)
            raise Unfit(why or _NO_RECIPE.format(choice.site))
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
