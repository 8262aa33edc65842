"""Pilots of this hub at sites with an agent: ordered by messages, each once, and called off.

All that decides whether a pilot is ordered is in one transaction with its secret and its message.
"""

from __future__ import annotations

import functools
import logging
from pathlib import Path

import anyio

from pilotage.base import backoff, crash, errors
from pilotage.base.clock import Clock
from pilotage.base.owner import me
from pilotage.base.supervise import Supervisor
from pilotage.edge import pilots, view
from pilotage.edge.message import HubAddress
from pilotage.edge.order import PilotOrder
from pilotage.edge.pilots import WantedPilot
from pilotage.pilot.model import State
from pilotage.pilot.table import Roster
from pilotage.pool import orders
from pilotage.pool.orders import Home
from pilotage.project import tokens
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.pilot")
_LOOK_S = 1.0
#: After an error it is tried again in 5 s.
_RESTART = backoff.fixed(5.0)
#: Characters of the name of a pilot.
_LONGEST = 128


class EdgePilots:
    """Orders pilots at all sites with an agent, and gives up those whose batch jobs are over."""

    def __init__(
        self, writer: Writer, roster: Roster, address: HubAddress, file: Path, clock: Clock
    ) -> None:
        """Get ready; `file` says where pilots find this hub."""
        self._writer, self._roster, self._address = writer, roster, address
        self._file, self._clock, self._now = file, clock, clock.now

    async def run(self) -> None:
        """Order pilots until cancelled."""
        parts = Supervisor(self._clock, _log, _RESTART)
        await parts.keep("pilots at sites with an agent", self._loop)

    async def _loop(self) -> None:
        while True:
            await self._look()
            await anyio.sleep(_LOOK_S)

    async def _look(self) -> None:
        try:
            home: Home | str = await orders.home(self._file)
        except errors.Unavailable as error:
            home = str(error)
        turn = functools.partial(self._turn, home=home, now=self._now())
        ordered, ended = await self._writer.run(turn)
        if ordered:
            crash.point("pilot.ordered")
        for number, words in ended:
            # One that has left by itself stays as it is.
            await self._roster.move(await self._roster.find(number), State.LOST, words)
            await self._writer.run(functools.partial(_forget, number=number))

    def _turn(
        self, db: Db, home: Home | str, now: float
    ) -> tuple[int, list[tuple[int, str]]]:  # fmt: skip
        """Order pilots and call others off; return how many are new, and which are over there."""
        ordered = self._order(db, home, now)
        pilots.cancel_unwanted(db, self._address, now)
        return ordered, [(number, words) for number, words in db.rows("edge_pilots_ended")]

    def _order(self, db: Db, home: Home | str, now: float) -> int:
        """Order what is wanted, or say why it is not; return how many were ordered."""
        sites, ordered = view.pilot_sites(db, now), 0
        for one in pilots.wanted(db, list(sites), now):
            if closed := sites[one.site].closed:
                pilots.say(db, one, closed)
            elif isinstance(home, str):
                pilots.say(db, one, home)
            else:
                ordered += self._order_one(db, one, home, now)
        return ordered

    def _order_one(self, db: Db, one: WantedPilot, home: Home, now: float) -> bool:
        secret, number = tokens.mint(
            db, tokens.Scope.ENROL, me(), now=now, lifetime=orders.WEEK_S, pool=one.pool,
            site=one.site, label=f"pilot {one.number}", uses=1, pilot=one.number,
        )  # fmt: skip
        name = f"{one.site}-{one.number}"[-_LONGEST:]
        asked = PilotOrder(secret, name, home.url, home.vouch, one.wish.idle)
        try:
            pilots.order(db, one, asked, self._address, now)
        except errors.UsageError as error:
            tokens.revoke(db, number, now)
            pilots.refuse(db, one, str(error), now)
            return False
        return True


def _forget(db: Db, number: int) -> None:
    db.run("pilot_end_drop", pilot=number)
