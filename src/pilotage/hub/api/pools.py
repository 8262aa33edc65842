"""Pools: what each sees, does and why, and whether it is paused."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import UNSET

from pilotage.base import errors
from pilotage.hub.api import ask, tell
from pilotage.hub.api.call import Call
from pilotage.hub.metrics import Family
from pilotage.pool import files, view
from pilotage.pool.state import Set
from pilotage.project.tokens import Scope
from pilotage.store import Db

_HOUR_S = 3600.0
#: Samples older than this say nothing about now.
_STALE_S = 300.0


def index(db: Db, call: Call) -> tell.Pools:
    """List the pools of the project."""
    found = view.pools(db, call.hands.project.root, call.hands.clock.now())
    return tell.Pools(found, call.grant.covers(Scope.ADMIN))


def samples(db: Db, call: Call) -> tell.PoolSamples:
    """Tell how pools were."""
    wanted: ask.PoolSamplesAsk = call.query
    since = call.now - _HOUR_S if wanted.since is UNSET else wanted.since
    step = max(0.001, (call.now - since) / wanted.points)
    return tell.PoolSamples(view.samples(db, since, wanted.pool, step))


def pause(db: Db, call: Call) -> tell.Became:
    """Leave a pool as it is."""
    return _ask(db, call, pause=True)


def resume(db: Db, call: Call) -> tell.Became:
    """Let a pool go on."""
    return _ask(db, call, pause=False)


def allow(db: Db, call: Call) -> tell.Became:
    """Ask a person about nothing more, up to the maximum of the pool."""
    root, name = named(call)
    given = msgspec.structs.replace(view.changed(db, name), ask_above=0)
    view.change(db, root, name, given)
    return tell.Became("allowed")


def reset(db: Db, call: Call) -> tell.Became:
    """Forget what a person has set."""
    root, name = named(call)
    view.change(db, root, name, Set())
    return tell.Became("as its file says")


def _ask(db: Db, call: Call, *, pause: bool) -> tell.Became:
    root, name = named(call)
    view.ask(db, root, name, pause=pause)
    return tell.Became("paused" if pause else "steered")


def named(call: Call) -> tuple[Path, str]:
    """Find the pool that is meant; whatever else is named is not there."""
    root, name = call.hands.project.root, call.path.name
    if name not in files.names(root):
        raise errors.NotFound(f"there is no pool {name}", hint="GET /api/v1/pools lists them")
    return root, name


def families(db: Db, now: float) -> list[Family]:
    """Measure the pools that somebody looks after."""
    last = {one.pool: one for one in view.samples(db, now - _STALE_S)}
    words = {
        "supply": "Cores that pools have.",
        "demand": "Cores that pools shall have.",
        "utilisation": "How well the pilots of pools are used, from 0 to 1.",
        "allocation": "How much of the pilots of pools is taken, from 0 to 1.",
        "queued": "Cores of pilots that are on their way.",
        "waiting": "Cores of queued jobs that pools could run.",
    }
    found = []
    for key, about in words.items():
        values = {name: getattr(one, key) for name, one in last.items()}
        known = {name: value for name, value in values.items() if value is not None}
        if known:
            found.append(Family(f"pilotage_pool_{key}", "gauge", about, known, "pool"))
    return found
