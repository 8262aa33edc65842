"""A pool of another hub, observed and controlled by its API."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec

from pilotage.base import errors
from pilotage.client.rest import Session
from pilotage.client.where import Address
from pilotage.pool.model import Plan, Reading, View
from pilotage.pool.pipeline import Face
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


class Voice:
    """Name of the controller, and the reason of its demand."""

    def __init__(self, by: str) -> None:
        """Have nothing to say yet."""
        self.by = by
        self.words = ""


class Sheet(msgspec.Struct, frozen=True):
    """What a hub says of a pool, as far as it matters here."""

    state: str
    control: str = ""
    trouble: str = ""
    looked: float | None = None
    supply: float = 0.0
    demand: float = 0.0
    queued: float = 0.0
    booting: float = 0.0
    draining: float = 0.0
    utilisation: float | None = None
    allocation: float | None = None
    minimum: float = 0.0
    maximum: float = 0.0
    pending: int = 0
    cpus: int = 1
    asked: float | None = None
    heard: float | None = None
    silence: float = 0.0

    def reading(self) -> Reading:
        """Return what a controller may know."""
        used, taken = (self.utilisation, self.allocation) if self.supply > 0 else (None, None)
        return Reading(
            self.supply, self._demand(), used, taken, self.queued, self.booting, self.draining
        )

    def _demand(self) -> float:
        # What the hub made of it counts, once it has looked: less, if so much cannot be had.
        if self.asked is not None and (self.heard or 0.0) > (self.looked or 0.0):
            return self.asked
        return self.demand

    def takes(self, demand: float) -> tuple[float, str]:
        """Return how much of a demand the pool takes, and why not all of it."""
        have = self.supply + self.queued + self.booting
        if self.state in {"paused", "backs off"}:
            return min(demand, have), f"its hub says: {self.trouble or self.state}"
        taken = min(self.maximum, max(self.minimum, demand))
        # What cannot be had soon is for others, or for later: the way back would begin up there.
        soon = max(self.minimum, have + self.pending * self.cpus)
        if taken > soon:
            return soon, f"only {self.pending} of its pilots may wait at once"
        if taken == demand:
            return taken, ""
        bound = "maximum" if taken < demand else "minimum"
        return taken, f"its {bound} in the hub is {volume(taken)}"


class PoolHub:
    """A hub whose pools are seen all at once, and asked one by one."""

    def __init__(
        self, find: Callable[[], Address], tick: Callable[[], float] = time.monotonic
    ) -> None:
        """Look up the hub each time, since its address may change."""
        self._find = find
        self._tick = tick
        self._session: Session | None = None
        #: What was seen last, or why nothing was, and when.
        self._seen: dict[str, Sheet] = {}
        self._error: Exception | None = None
        self._when = -math.inf

    def see(self, name: str) -> Sheet:
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
            self._seen = {row["name"]: msgspec.convert(row, Sheet) for row in rows}
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
        """Stand for the pool of that name."""
        self.name = name
        self._hub = hub
        self._voice = voice
        self._tick = tick
        self._sheet = Sheet("")
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
        return View(self.name, sheet.reading())

    def plan(self, view: View, demand: float | None, elapsed: float) -> Plan:  # noqa: ARG002
        """Take what the hub will take."""
        if demand is None:
            return Plan(self.name, None, view.reading.demand, state=view.reading.demand)
        wanted = min(_MOST, max(0.0, demand))
        taken, words = self._sheet.takes(wanted)
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
