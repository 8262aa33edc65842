"""A pool of a hub, seen and steered by the hub's API."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from pilotage import errors
from pilotage.client import rest
from pilotage.client.where import Address
from pilotage.pool.model import Plan, Reading, View
from pilotage.pool.pipeline import Face
from pilotage.pool.words import volume

_log = logging.getLogger("pilotage.pool")
#: A demand that does not change is told again after this part of what counts as silence.
_PART = 0.25
#: The most that is asked for.
_MOST = 1e9
_WORDS = 1000


class Voice:
    """Who speaks for a pipeline, and why it asks for what it does."""

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
        """Say how much of a demand the pool takes, and why not all of it."""
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


class Remote(Face):
    """A pool of a hub."""

    def __init__(
        self, name: str, find: Callable[[], Address], voice: Voice,
        tick: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """Find the hub anew each time, since it may come back elsewhere."""
        self.name = name
        self._find = find
        self._voice = voice
        self._tick = tick
        self._sheet = Sheet("")
        #: What was told last, and when.
        self._told: float | None = None
        self._when = 0.0
        self._rival = ""

    def view(self) -> View:
        """Ask the hub what it is."""
        sheet = msgspec.convert(rest.pool(self._find(), self.name), Sheet)
        if sheet.state == "bad file":
            raise errors.ConfigError(f"the hub cannot read the file of {self.name}")
        if sheet.control != "outside":
            message = f"pool {self.name} is not steered from outside: `{sheet.control}` decides"
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
        """Tell the hub; that nothing has changed now and then, too, so that it hears of us."""
        wanted: float = plan.state
        rest_s = self._tick() - self._when
        if wanted == self._told and rest_s < self._sheet.silence * _PART:
            return
        body = {"demand": wanted, "by": self._voice.by, "words": self._voice.words[:_WORDS]}
        told = rest.demand(self._find(), self.name, body)
        self._told, self._when = wanted, self._tick()
        rival = str(told.get("words", ""))
        if rival and not self._rival:
            _log.warning("pool %s: %s", self.name, rival)
        self._rival = rival
