"""Sites that are heard of by the bus, in tables and sheets; and `pilotage site forget`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from pilotage import errors, units
from pilotage.cli import shape, sheet
from pilotage.cli.answer import Answer, Cell, Shown, Style, Styled, line
from pilotage.cli.common import HERE, Common
from pilotage.hub import edge_seen
from pilotage.hub.edge_seen import Edge, Seen
from pilotage.hub.project import Project
from pilotage.site import files

#: What to do about a site that was not heard of.
SOON = "an agent is heard by its next heartbeat, 30 s apart unless it says otherwise"
_STYLES: dict[str, Style] = {"well": "green", "draining": "yellow", "unknown": "dim"}
_WHERE = "by messages"


def look(project: Project) -> Seen:
    """Say how such sites are."""
    return edge_seen.look(project.db, project.clock.now(), running=project.running())


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


def check_here(project: Project, name: str, verb: str) -> None:
    """Refuse for a site that only its own agent steers, and say how that is asked."""
    if name not in files.names(project.root) and edge_seen.record(project.db, name):
        message = f"{name} is reached by messages: it is for its agent to {verb}"
        raise errors.UsageError(message, hint=f"`pilotage site control {name} {verb}` asks it")


def row(one: Edge) -> tuple[Cell, ...]:
    """Write a site as a row of the table of all sites."""
    return one.name, one.batch, _WHERE, _word(one), one.live, 0, one.words


def data(one: Edge) -> dict[str, Any]:
    """Write a site for programs."""
    facts: dict[str, Any] = msgspec.structs.asdict(one)
    return facts | {"since": shape.stamp(one.since), "heard": shape.stamp(one.heard)}


def broker(seen: Seen) -> dict[str, Any]:
    """Write how it goes with the broker for programs."""
    return {"trouble": seen.broker.trouble, "since": shape.stamp(seen.broker.since)}


def notes(project: Project, seen: Seen) -> tuple[str, ...]:
    """Say why nothing is known of these sites now."""
    if not seen.edges and not project.settings.bus.url:
        return ()
    if seen.broker.trouble:
        since = seen.broker.since
        if not project.running():
            when = f"since {shape.clock(since)} " if since else ""
            return (f"{when}nobody listens to the broker: start `pilotage up`",)
        when = f" since {shape.clock(since)}" if since else ""
        return (f"the broker cannot be reached{when}: {seen.broker.trouble}",)
    return () if seen.edges else (f"no site was heard of by the broker yet: {SOON}",)


def show(one: Edge) -> list[Shown]:
    """Write all that is known of a site for people."""
    jobs = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in one.jobs.items())
    days = one.certificate_days
    told = {
        "about": one.words,
        "since": shape.clock(one.since),
        "heard": f"{shape.clock(one.heard)}; each {units.for_people(one.interval)}",
        "agent": f"Pilotage {one.version}, epoch {one.epoch}, up for {units.for_people(one.age)}",
        "speaks as": one.speaker,
        "batch": one.batch,
        "jobs": jobs or "none",
        "to be sent": shape.count(one.outbox, "status message") if one.outbox else "",
        "papers": "" if days is None else _papers(days),
        "disk": f"{units.bytes_for_people(one.disk_free)} free",
    }
    head = line(Styled(f"site {one.name}", "bold"), "  ", _word(one), f"  {_WHERE}")
    return [head, *(sheet.pair(key, value) for key, value in told.items() if value)]


def _word(one: Edge) -> Styled:
    style = _STYLES.get(one.state, "red")
    return Styled(one.state, "yellow" if one.warned and style == "green" else style)


def _papers(days: float) -> str:
    if days < 0:
        return f"its certificate is over since {units.for_people(-days * 86_400)}"
    return f"its certificate is good for {units.for_people(days * 86_400)}"
