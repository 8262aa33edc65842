"""Sites: their state, and whether they get work."""

from __future__ import annotations

from pilotage.base import errors
from pilotage.batch import records
from pilotage.edge import view
from pilotage.edge.view import EdgeSitesView
from pilotage.hub.api import answers
from pilotage.hub.api.call import ApiCall
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


def heard(db: Db, now: float) -> EdgeSitesView:
    """Return what edge sites reported last."""
    return view.look(db, now)


def _look(db: Db, call: ApiCall) -> site_view.SiteList:
    project = call.context.project
    return site_view.look(db, project.root, project.settings, call.context.clock.now())
