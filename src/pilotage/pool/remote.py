"""A pool of another hub, observed and controlled by its API."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import msgspec

from pilotage.base import errors
from pilotage.client.rest import Session
from pilotage.client.where import Address
from pilotage.pool.model import Plan, Reading, View
from pilotage.pool.pipeline import Face
from pilotage.pool.view import PoolView
from pilotage.pool.words import volume

_log = logging.getLogger("pilotage.pool")
#: An unchanged demand is sent again after this part of the time-out.
_PART = 0.25
#: Seconds for which a reading is used again.
_FRESH_S = 0.2
#: Seconds that a hub has to answer.
_PATIENCE_S = 10.0
#: The most that is asked for.
_MOST = 1e9
_WORDS = 1000


@dataclass(eq=False)
class Voice:
    """Name of the controller, and the reason of its demand."""

    by: str
    words: str = field(default="", init=False)


def reading(pool: PoolView) -> Reading:
    """Return what a controller may know of a pool."""
    used, taken = (pool.utilisation, pool.allocation) if pool.supply > 0 else (None, None)
    demand = pool.demand
    # Once the hub has looked, its own demand counts: less, if the request cannot be met.
    if pool.asked is not None and (pool.heard or 0.0) > (pool.looked or 0.0):
        demand = pool.asked
    return Reading(pool.supply, demand, used, taken, pool.queued, pool.booting, pool.draining)


def takes(pool: PoolView, demand: float) -> tuple[float, str]:
    """Return how much of a demand a pool takes, and why not all of it."""
    have = pool.supply + pool.queued + pool.booting
    if pool.state in {"paused", "backs off"}:
        return min(demand, have), f"its hub says: {pool.trouble or pool.state}"
    taken = min(pool.maximum, max(pool.minimum, demand))
    # What cannot be had soon is for others, or for later: the way back would begin up there.
    soon = max(pool.minimum, have + pool.pending * pool.cpus)
    if taken > soon:
        return soon, f"only {pool.pending} of its pilots may wait at once"
    if taken == demand:
        return taken, ""
    bound = "maximum" if taken < demand else "minimum"
    return taken, f"its {bound} in the hub is {volume(taken)}"


@dataclass(eq=False)
class PoolHub:
    """A hub whose pools are seen all at once, and asked one by one."""

    #: Looks up the hub each time, since its address may change.
    _find: Callable[[], Address]
    _tick: Callable[[], float] = time.monotonic
    _session: Session | None = field(default=None, init=False)
    #: What was seen last, or why nothing was, and when.
    _seen: dict[str, PoolView] = field(default_factory=dict, init=False)
    _error: Exception | None = field(default=None, init=False)
    _when: float = field(default=-math.inf, init=False)

    def see(self, name: str) -> PoolView:
        """See a pool; those that are looked at in the same moment are asked about once."""
        if self._tick() - self._when > _FRESH_S:
            self._look()
        if self._error is not None:
            raise self._error
        if name not in self._seen:
            message = f"there is no pool `{name}` in the hub"
            raise errors.NotFound(message, hint="`pilotage pool ls` lists them")
        return self._seen[name]

    def tell(self, name: str, body: dict[str, Any]) -> str:
        """Ask a pool for cores; return what the hub has to say."""
        self._when = -math.inf
        told = self._open().ask("PUT", f"/pools/{quote(name, safe='')}/demand", body)
        return str(told["words"])

    def close(self) -> None:
        """End the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _look(self) -> None:
        try:
            rows = self._open().ask("GET", "/pools")["pools"]
            self._seen = {row["name"]: msgspec.convert(row, PoolView) for row in rows}
            self._error = None
        except (errors.PilotageError, msgspec.ValidationError, KeyError, TypeError) as error:
            # For all of its pools: to ask for each would take as long as the hub is patient.
            self._error = error
        self._when = self._tick()

    def _open(self) -> Session:
        address = self._find()
        if self._session is None or self._session.address != address:
            self.close()
            self._session = Session(address, _PATIENCE_S)
        return self._session


class RemotePool(Face):
    """A pool of a hub."""

    def __init__(
        self, name: str, hub: PoolHub, voice: Voice, tick: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self._hub = hub
        self._voice = voice
        self._tick = tick
        self._sheet = PoolView(name=name, state="")
        #: The last demand sent, and when.
        self._told: float | None = None
        self._when = 0.0
        self._rival = ""

    def view(self) -> View:
        """Return what the hub sees of it."""
        sheet = self._hub.see(self.name)
        if sheet.state == "bad file":
            raise errors.ConfigError(f"the hub cannot read the file of {self.name}")
        if sheet.control != "outside":
            message = f"pool {self.name} has no external controller: `{sheet.control}` decides"
            raise errors.Conflict(message, hint='its file needs `kind = "outside"` in `[control]`')
        self._sheet = sheet
        return View(self.name, reading(sheet))

    def plan(self, view: View, demand: float | None, elapsed: float) -> Plan:  # noqa: ARG002
        """Take what the hub will take."""
        if demand is None:
            return Plan(self.name, None, view.reading.demand, state=view.reading.demand)
        wanted = min(_MOST, max(0.0, demand))
        taken, words = takes(self._sheet, wanted)
        return Plan(self.name, wanted, taken, words, state=wanted)

    def act(self, plan: Plan) -> None:
        """Send the demand; repeat it when unchanged, as a heartbeat."""
        wanted: float = plan.state
        rest_s = self._tick() - self._when
        if wanted == self._told and rest_s < self._sheet.silence * _PART:
            return
        body = {"demand": wanted, "by": self._voice.by, "words": self._voice.words[:_WORDS]}
        rival = self._hub.tell(self.name, body)
        self._told, self._when = wanted, self._tick()
        if rival and not self._rival:
            _log.warning("pool %s: %s", self.name, rival)
        self._rival = rival
