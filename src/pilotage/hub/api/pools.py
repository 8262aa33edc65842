"""Pools: state, reasons, samples, pause, and demand set from outside."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import UNSET

from pilotage.base import errors
from pilotage.hub.api import answers, queries
from pilotage.hub.api.call import ApiCall
from pilotage.pool import files, state, view
from pilotage.pool.state import PoolOverrides, Taken
from pilotage.pool.view import PoolSample, PoolView
from pilotage.project.tokens import TokenScope
from pilotage.store import Db

_HOUR_S = 3600.0
#: Samples older than this say nothing about now.
_STALE_S = 300.0


def index(db: Db, call: ApiCall) -> answers.Pools:
    """List the pools of the project."""
    found = view.pools(db, call.context.project.root, call.context.clock.now())
    return answers.Pools(found, call.grant.covers(TokenScope.ADMIN))


def samples(db: Db, call: ApiCall) -> answers.PoolSamples:
    """Return samples of pools."""
    wanted: queries.PoolSamplesAsk = call.query
    since = call.now - _HOUR_S if wanted.since is UNSET else wanted.since
    step = max(0.001, (call.now - since) / wanted.points)
    return answers.PoolSamples(view.samples(db, since, wanted.pool, step))


def pause(db: Db, call: ApiCall) -> answers.Became:
    """Pause a pool."""
    return _ask(db, call, pause=True)


def resume(db: Db, call: ApiCall) -> answers.Became:
    """Resume a pool."""
    return _ask(db, call, pause=False)


def allow(db: Db, call: ApiCall) -> answers.Became:
    """Ask a person about nothing more, up to the maximum of the pool."""
    root, name = named(call)
    given = msgspec.structs.replace(view.changed(db, name), ask_above=0)
    view.change(db, root, name, given)
    return answers.Became("allowed")


def reset(db: Db, call: ApiCall) -> answers.Became:
    """Forget what a person has set."""
    root, name = named(call)
    view.change(db, root, name, PoolOverrides())
    return answers.Became("as its file says")


def _ask(db: Db, call: ApiCall, *, pause: bool) -> answers.Became:
    root, name = named(call)
    view.ask(db, root, name, pause=pause)
    return answers.Became("paused" if pause else "controlled")


def named(call: ApiCall) -> tuple[Path, str]:
    """Find the pool that is meant; whatever else is named is not there."""
    root, name = call.context.project.root, call.path.name
    if name not in files.names(root):
        raise errors.NotFound(f"there is no pool {name}", hint="GET /api/v1/pools lists them")
    return root, name


def newest(db: Db, now: float) -> dict[str, PoolSample]:
    """Return the last sample of each pool that is not too old."""
    return {one.pool: one for one in view.samples(db, now - _STALE_S)}


def show(db: Db, call: ApiCall) -> PoolView:
    """Read one pool."""
    root, name = named(call)
    return view.pool(db, root, name, call.now)


def demand(db: Db, call: ApiCall) -> Taken:
    """Ask a pool for a number of cores."""
    asked: queries.Demand = call.body
    name = call.path.name
    if not call.grant.steers(name):
        message = f"a token for {call.grant.scope} cannot control the pool {name}"
        raise errors.Denied(message, hint="`pilotage token new pool` makes one that can")
    root, _ = named(call)
    return state.tell(db, root, name, asked.demand, asked.words, asked.by, call.now)
