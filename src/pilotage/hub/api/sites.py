"""Sites: how they are, and whether they are given work."""

from __future__ import annotations

from pilotage import errors
from pilotage.hub import edge_seen, places
from pilotage.hub.api import tell
from pilotage.hub.api.call import Call
from pilotage.hub.metrics import Family
from pilotage.site import files
from pilotage.store import Db


def index(db: Db, call: Call) -> tell.Sites:
    """List the sites of the project."""
    project, now = call.hands.project, call.hands.clock.now()
    heard = edge_seen.look(db, now)
    broker = heard.broker if heard.edges or project.settings.bus.url else None
    return tell.Sites(places.sites(db, project.root, now), heard.edges, broker)


def drain(db: Db, call: Call) -> tell.Became:
    """Give a site nothing more."""
    return _ask(db, call, "drain")


def resume(db: Db, call: Call) -> tell.Became:
    """Give a site work again."""
    return _ask(db, call, "")


def _ask(db: Db, call: Call, asked: str) -> tell.Became:
    name = call.path.name
    if name not in files.names(call.hands.project.root):
        raise errors.NotFound(f"there is no site {name}", hint="GET /api/v1/sites lists them")
    db.run("site_ask", name=name, asked=asked)
    return tell.Became(asked or "open")


def families(db: Db, now: float) -> list[Family]:
    """Measure the sites that are heard of by the broker."""
    heard = edge_seen.look(db, now)
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
