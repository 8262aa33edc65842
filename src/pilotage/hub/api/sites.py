"""Sites: how they are, and whether they are given work."""

from __future__ import annotations

from pilotage import errors
from pilotage.hub import places
from pilotage.hub.api import tell
from pilotage.hub.api.call import Call
from pilotage.site import files
from pilotage.store import Db


def index(db: Db, call: Call) -> tell.Sites:
    """List the sites of the project."""
    now = call.hands.clock.now()
    return tell.Sites(places.sites(db, call.hands.project.root, now))


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
