"""Sites with an agent that this hub hears of, as places for its jobs: the parts put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

from pilotage.base import units
from pilotage.edge import broker, view
from pilotage.edge.data import EdgeData
from pilotage.edge.message import Address
from pilotage.edge.place import Facts, Hub
from pilotage.edge.port.sites import Lines
from pilotage.edge.service import Carriers, Connection, EdgeSites
from pilotage.edge.silence import Patience
from pilotage.edge.view import Edge
from pilotage.flow import broker as line
from pilotage.flow.outcomes import FlowSteps
from pilotage.hub.project import Project
from pilotage.match.queue import Queue
from pilotage.run.local import JobListener
from pilotage.store import Db, Writer


def make(
    project: Project, writer: Writer, open_reader: Callable[[], Db], queue: Queue,
    listener: JobListener, lines: Lines, address: Address,
) -> EdgeSites:  # fmt: skip
    """Put the service together; `address` is how sites know this hub.

    `lines` are agents at this hub's port.
    """
    settings = project.settings
    data = EdgeData(project, open_reader())
    shared = Hub(
        queue, writer, data, listener, address, str(project.root), str(project.state / "jobs")
    )

    def connect() -> AbstractAsyncContextManager[Connection]:
        pattern = settings.flows.reply or "status.**"
        own = {pattern: f"{settings.bus.exchange}:jobs:{address.hub}"}
        return broker.connect(settings.bus, project.root, queues=own, fading=(pattern,))

    def known(db: Db, now: float) -> Mapping[str, Facts]:
        # Names that stand for a file of the project are not theirs.
        rows = {row[1]: row for row in db.rows("site_all")}
        return {
            one.name: Facts(
                one.batch,
                one.applications,
                _closed(one, rows[one.name][6]),
                view.offer(one, now),
                (one.rules, *(f"{queue.name}:{queue.time}" for queue in one.scheduler.queues)),
                frozenset(one.carries),
            )
            for one in view.look(db, now).edges
            if one.name in rows and rows[one.name][10] == "agent"
        }

    patience = Patience(units.seconds(settings.flows.ask), units.seconds(settings.flows.silence))
    carriers = Carriers(connect if settings.bus.url else None, lines)
    return EdgeSites(shared, open_reader, project.clock, patience, carriers, known, FlowSteps())


def _closed(one: Edge, asked: str) -> str:
    """Say why a site is given no jobs; empty if it is."""
    if asked:
        return "a person had it drained"
    if one.state == "silent":
        return "no heartbeat comes from its agent"
    return "its administrator accepts no jobs" if one.draining else ""


def address(db: Db, project: Project) -> Address:
    """Return how sites know this hub, and where they answer."""
    return Address(line.own(db), project.settings.flows.reply)
