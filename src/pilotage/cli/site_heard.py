"""`pilotage site check` for sites that this hub only hears of: by an agent or pilots."""

from __future__ import annotations

import time

import anyio

from pilotage.base import errors, units
from pilotage.bus import wire
from pilotage.bus.model import Answer, Control
from pilotage.cli import shape
from pilotage.cli.doctor import Check
from pilotage.edge import broker, health
from pilotage.edge.view import EdgeSite
from pilotage.hub.project import Project
from pilotage.status.sites import Seen

#: How long an agent may take to answer, in seconds.
_PATIENCE_S = 10.0
_LEAST_ROOM = 1 << 30


def check(project: Project, one: Seen) -> list[Check]:
    """Look at what is known of a site, and ask its agent if it has one."""
    found = [Check("name", "bad", one.conflict)] if one.conflict else []
    if one.agent is not None:
        found += _agent(one.agent)
        if not one.agent.ported:
            found.append(anyio.run(_answers, project, one.name))
    else:
        words = one.words or f"{shape.count(one.pilots, 'pilot')} there"
        about = "agent" if one.kind == "agent" else "pilots"
        found.append(Check(about, "ok" if one.state == "well" else "warn", words))
    if one.drain is not None:
        by, why = one.drain.by or "a person", f": {one.drain.why}" if one.drain.why else ""
        found.append(Check("drained", "warn", f"by {by}, at this hub{why}"))
    return found


def _agent(one: EdgeSite) -> list[Check]:
    heard = f"heard of at {shape.clock(one.heard)}, each {units.for_people(one.interval)}"
    scheduler, days = one.scheduler, one.certificate_days
    apps = ", ".join(one.applications)
    found = [
        Check("agent", "bad" if one.state == "silent" else "ok", heard)
        if one.state != "unknown"
        else Check("agent", "warn", f"{one.words}; {heard}"),
        Check(
            scheduler.batch or "batch system",
            "ok" if scheduler.well else "bad",
            scheduler.text or "answers",
        ),
        Check(
            "disk",
            "ok" if one.disk_free >= _LEAST_ROOM else "bad",
            f"{units.bytes_for_people(one.disk_free)} free",
        ),
        Check("apps", "ok" if apps else "warn", apps or "none: it runs nothing for others"),
    ]
    if days is not None:
        left = f"good for {units.for_people(days * 86_400)}" if days >= 0 else "over"
        verdict = "bad" if days < 0 else "warn" if days < health.SOON_DAYS else "ok"
        found.append(Check("certificate", verdict, left))
    if one.draining:
        found.append(Check("jobs", "warn", health.drained(one.drain)))
    return found


async def _answers(project: Project, site: str) -> Check:
    """Ask an agent for its counts, and see whether an answer comes."""
    began = time.monotonic()
    try:
        async with broker.connect(project.settings.bus, project.root) as bus:
            body = wire.encode(Control(site=site, verb="query"))
            told = wire.decode(await bus.request(f"control.{site}", body, _PATIENCE_S))
    except errors.PilotageError as error:
        return Check("answers", "bad", f"{error}: {error.hint}" if error.hint else str(error))
    if not isinstance(told, Answer) or not told.ok:
        said = told.text if isinstance(told, Answer) else "it gave no answer"
        return Check("answers", "warn", said)
    return Check("answers", "ok", f"in {units.for_people(time.monotonic() - began)}")
