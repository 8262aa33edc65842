"""How a pilot leaves: take no more, finish or stop, report, say good-bye; its exit status."""

from __future__ import annotations

from typing import Any

from . import frame
from .policy import StayLimits

#: It left as it should.
LEFT = 0
#: The node did not pass a check.
UNFIT = 10
#: The hub does not want it.
REFUSED = 11
#: The hub could not be reached.
UNREACHED = 12
#: Ends are left that the hub has not got; they are in the folder that stays.
UNDELIVERED = 13
#: What starts payloads dies again and again.
BROKEN = 14


#: Why a pilot leaves that got a signal.
TOLD = "it was told to end"
#: How long the last words may take.
_GOODBYE_S = 5.0
#: How long it may take to stop payloads and to report them, when somebody wants us gone.
_QUICK_S = 25.0


class Exit:
    """Why and how the pilot leaves."""

    def __init__(self, limits: StayLimits) -> None:
        self.limits = limits
        #: Whether the hub knows this pilot, so that it should hear of its leaving.
        self.known = False
        #: Whether the hub has said good-bye.
        self.left = False
        #: Whether nothing is left to do but to say good-bye.
        self.done = False
        #: Whether payloads have been told to end.
        self.stopping = False
        self._why = ""
        self._status: int | None = None
        self._told: int | None = None
        self._heard = False
        self._deadline: float | None = None
        self._good_bye: float | None = None
        self._undelivered = 0

    @property
    def draining(self) -> bool:
        """Return whether no more work is wanted."""
        return self._status is not None

    @property
    def must_say(self) -> bool:
        """Return whether the hub must be told that no more work is wanted."""
        return self.draining and self._told is None

    def leave(self, why: str, code: int, now: float, *, quick: bool = False) -> None:
        """Decide to leave; the first reason stays, and a quick way out stays quick."""
        if self._status is None:
            self._why, self._status = why, code
        if quick and not self.stopping:
            self.stopping = True
            self._deadline = now + _QUICK_S
            last = self.limits.last_moment()
            if last is not None:
                self._deadline = min(self._deadline, max(last, now))

    def hurry(self, now: float) -> None:
        """Leave at once."""
        self._deadline = min(self._deadline or now + _GOODBYE_S, now + _GOODBYE_S)

    def said(self, n: int) -> None:
        """Note that a message told the hub that no more work is wanted."""
        if self.draining and self._told is None:
            self._told = n

    def heard(self, n: int) -> None:
        """Note that the hub has answered a message."""
        self._heard = self._heard or n == self._told

    def consider(self, now: float, *, busy: bool, unsent: int, up: bool) -> None:
        """See whether all is done, given what is left and whether the hub can be reached."""
        if not self.draining:
            return
        self._undelivered = unsent
        if not up:
            # What was said may be lost; it is said again on the next connection.
            self._told = None if not self._heard else self._told
        if not busy and (self._heard or self.stopping or not up):
            self.done = True
            self._good_bye = self._good_bye or now + (_GOODBYE_S if self.known else 0.0)
        elif not self.stopping:
            self.done = False

    def status(self, now: float) -> int | None:
        """Return the exit status when it is time to go."""
        if self._status is None:
            return None
        late = self._deadline is not None and now > self._deadline
        gone = self._good_bye is not None and now >= self._good_bye
        if not (self.left or late or (self.done and gone)):
            return None
        return UNDELIVERED if self._undelivered else self._status

    def words(self) -> str:
        """Write the fields of the good-bye."""
        return f'"reason":{frame.text(self._why)}'

    def found(self, results: list[dict[str, Any]], sight: dict[str, Any]) -> str:
        """Write the fields that tell what the checks found, and what is seen of the project."""
        return frame.text({"checks": results, **sight})[1:-1]
