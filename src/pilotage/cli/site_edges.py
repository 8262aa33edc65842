"""What agents say of their sites, in sheets; and `pilotage site forget`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from pilotage.base import errors, units
from pilotage.cli import shape
from pilotage.cli.answer import Answer
from pilotage.cli.common import HERE, Common
from pilotage.edge.view import EdgeSite
from pilotage.hub.project import Project
from pilotage.status.sites import Looked

#: What to do about a site that was not heard of.
SOON = "an agent is heard by its next heartbeat, 30 s apart unless it says otherwise"


def forget(
    name: Annotated[str, Parameter(help="Name of the site.")], /, *, at: Common = HERE
) -> Answer:
    """Forget a site that is no longer served; its next heartbeat brings it back."""
    with at.open() as project, project.db.transaction() as db:
        gone = db.value("edges_forget", name=name)
    if gone is None:
        message = f"no site {name} was heard of by the broker"
        raise errors.NotFound(message, hint="`pilotage site ls` lists those that were")
    return Answer({"site": name, "forgotten": True}, (f"{name} is forgotten",), (name,))


def notes(project: Project, seen: Looked) -> tuple[str, ...]:
    """Say why nothing is known of sites with an agent now."""
    broker = seen.broker
    if broker is None:
        return ()
    if broker.trouble:
        if not project.running():
            when = f"since {shape.clock(broker.since)} " if broker.since else ""
            return (f"{when}nobody listens to the broker: start `pilotage up`",)
        when = f" since {shape.clock(broker.since)}" if broker.since else ""
        return (f"the broker cannot be reached{when}: {broker.trouble}",)
    agents = any(one.agent is not None for one in seen.sites)
    return () if agents else (f"no site was heard of by the broker yet: {SOON}",)


def facts(one: EdgeSite) -> dict[str, str]:
    """Write what an agent says of its site for people."""
    jobs = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in one.jobs.items())
    days = one.certificate_days
    return {
        "heard": f"{shape.clock(one.heard)}; each {units.for_people(one.interval)}",
        "agent": f"Pilotage {one.version}, epoch {one.epoch}, up for {units.for_people(one.age)}",
        "speaks as": one.speaker,
        "all jobs": jobs or "none",
        "apps": ", ".join(one.applications),
        "to be sent": shape.count(one.outbox, "status message") if one.outbox else "",
        "papers": "" if days is None else _papers(days),
        "disk": f"{units.bytes_for_people(one.disk_free)} free",
    }


def _papers(days: float) -> str:
    if days < 0:
        return f"its certificate is over since {units.for_people(-days * 86_400)}"
    return f"its certificate is good for {units.for_people(days * 86_400)}"
