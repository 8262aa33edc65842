"""Sites: their state, and whether they get work."""

from __future__ import annotations

from pilotage.base import errors
from pilotage.batch import records
from pilotage.edge import view
from pilotage.hub.api import answers
from pilotage.hub.api.call import ApiCall
from pilotage.hub.metrics import Family
from pilotage.status import sites as site_view
from pilotage.store import Db


def index(db: Db, call: ApiCall) -> answers.SiteList:
    """List all sites."""
    return answers.SiteList(*_look(db, call))


def show(db: Db, call: ApiCall) -> site_view.SiteStatus:
    """Read the state of a site."""
    name = call.path.name
    found = next((one for one in _look(db, call).sites if one.name == name), None)
    if found is None:
        raise errors.NotFound(f"there is no site {name}", hint="GET /api/v1/sites lists them")
    return found


def drain(db: Db, call: ApiCall) -> answers.Became:
    """Drain a site."""
    return _ask(db, call, "drain", call.query.reason)


def resume(db: Db, call: ApiCall) -> answers.Became:
    """Resume a site."""
    return _ask(db, call, "", "")


def _ask(db: Db, call: ApiCall, asked: str, why: str) -> answers.Became:
    by = call.grant.owner or "an admin"
    records.ask(db, show(db, call).name, asked, by=by, why=why, now=call.now)
    return answers.Became(asked or "open")


def _look(db: Db, call: ApiCall) -> site_view.SiteList:
    project = call.context.project
    return site_view.look(db, project.root, project.settings, call.context.clock.now())


def families(db: Db, now: float) -> list[Family]:
    """Return the metrics of edge sites."""
    heard = view.look(db, now)
    if not heard.edges:
        return []
    sites = {one.name: one for one in heard.edges}
    up = {name: float(one.state in ("well", "draining")) for name, one in sites.items()}
    quiet = {name: now - one.heard for name, one in sites.items()}
    jobs = {name: one.live for name, one in sites.items()}
    outbox = {name: one.outbox for name, one in sites.items()}
    disk = {name: one.disk_free for name, one in sites.items()}
    days = {
        name: one.certificate_days
        for name, one in sites.items()
        if one.certificate_days is not None
    }
    listens = float(not heard.broker.trouble)
    return [
        Family("pilotage_broker_up", "gauge", "Whether the broker is listened to.", listens),
        Family("pilotage_edge_up", "gauge", "Whether a site is well or drains.", up, "site"),
        Family(
            "pilotage_edge_quiet_seconds", "gauge", "Since the last heartbeat.", quiet, "site"
        ),
        Family("pilotage_edge_jobs", "gauge", "Jobs there that have not ended.", jobs, "site"),
        Family("pilotage_edge_outbox", "gauge", "Status messages to be sent.", outbox, "site"),
        Family("pilotage_edge_disk_free_bytes", "gauge", "Room for jobs there.", disk, "site"),
        Family("pilotage_edge_certificate_days", "gauge", "Until it ends.", days, "site"),
    ]  # fmt: skip
