"""Pools that are steered from outside: see one, and ask it for cores."""

from __future__ import annotations

from pilotage.base import errors
from pilotage.hub.api import ask, pools
from pilotage.hub.api.call import Call
from pilotage.pool import state, view
from pilotage.pool.state import Taken
from pilotage.pool.view import Look
from pilotage.store import Db


def show(db: Db, call: Call) -> Look:
    """See one pool."""
    root, name = pools.named(call)
    return view.pool(db, root, name, call.now)


def demand(db: Db, call: Call) -> Taken:
    """Ask a pool for so many cores."""
    asked: ask.Demand = call.body
    name = call.path.name
    if not call.grant.steers(name):
        message = f"a token for {call.grant.scope} cannot steer the pool {name}"
        raise errors.Denied(message, hint="`pilotage token new pool` makes one that can")
    root, _ = pools.named(call)
    return state.tell(db, root, name, asked.demand, asked.words, asked.by, call.now)
