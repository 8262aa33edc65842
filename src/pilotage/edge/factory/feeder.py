"""Speaks with one hub, again and again: reports, hears what is wanted, and gets secrets."""

from __future__ import annotations

import functools
import logging
from asyncio import wrap_future
from collections.abc import Callable, Mapping
from typing import TypeVar

import anyio
from msgspec import structs

from pilotage.agent.share import Claim, Limit
from pilotage.base import crash, errors
from pilotage.base.clock import Clock, dice
from pilotage.batch import wish
from pilotage.batch.connections import Ways
from pilotage.batch.wish import Wish
from pilotage.edge.factory import book
from pilotage.edge.factory.book import Wanted
from pilotage.edge.factory.caller import Caller
from pilotage.edge.factory.files import Known
from pilotage.edge.factory.floor import Floor
from pilotage.edge.factory.wire import LONGEST, MOST_SECRETS, FactoryOrders
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.feed")
_T = TypeVar("_T")
#: Where a test can kill the factory.
POINTS = (
    "feed.reported", "feed.heard", "feed.heeded", "feed.taken", "feed.enrolled",
)  # fmt: skip
#: The longest pause while a hub is away, in seconds.
_LONGEST_S = 60.0
#: Secrets that are older are asked for anew, in seconds; the hub lets them count for a week.
_OLD_S = 3 * 86400.0


class Feeder:
    """Feeds one hub."""

    def __init__(
        self, name: str, factory: str, known: Known, floor: Floor, writer: Writer, clock: Clock,
        ways: Ways,
    ) -> None:  # fmt: skip
        """Take the name of this factory, and the ways to sites of ours."""
        self._name = name
        self._factory = factory
        self._known = known
        self._floor = floor
        self._writer = writer
        self._clock = clock
        self._ways = ways
        self._dice = dice()
        self._caller = Caller(name, known)
        #: By our number: the secret of a pilot that is to be submitted, and when it was made.
        self._secrets: dict[int, tuple[str, float]] = {}
        #: Whether the hub answered the last time.
        self.heard = False

    @property
    def known(self) -> Known:
        """The hub that is fed."""
        return self._known

    def secret(self, guest: int) -> str:
        """Return the secret of a pilot; empty if there is none yet."""
        return self._secrets.get(guest, ("", 0.0))[0]

    async def run(self) -> None:
        """Feed until cancelled."""
        seconds, tries = self._known.hub.seconds, 0
        try:
            while True:
                try:
                    await self.turn()
                except errors.PilotageError as error:
                    await self._note(error, tries)
                    tries += 1
                except Exception as error:  # noqa: BLE001 - the other hubs are fed anyway
                    _log.exception("hub %s: this is a mistake in Pilotage", self._name)
                    await self._note(errors.PilotageError(f"a mistake here: {error}"), 1)
                    tries += 1
                else:
                    tries = 0
                pause = min(_LONGEST_S, seconds * 2.0 ** min(tries, 10))
                await self._clock.sleep(pause * self._dice.uniform(0.9, 1.1))
        finally:
            self._floor.leave(self._name)
            with anyio.move_on_after(1.0, shield=True):
                await self._caller.close()

    async def turn(self) -> None:
        """Report, hear, take on and get secrets, once."""
        hub, now = self._known.hub, self._clock.now()
        self._floor.enter(self._name, Limit(hub.maximum, hub.pending))
        words = {theirs: self._ways.trouble(ours) for theirs, ours in hub.sites.items()}
        words = await self._do(functools.partial(self._explain, words=words))
        report = await self._do(
            lambda db: book.report(db, self._name, self._factory, words, now)
        )  # fmt: skip
        crash.point("feed.reported")
        orders = await self._caller.sync(report)
        crash.point("feed.heard")
        # What it wanted before is old news: nothing of it is taken on once its end is forgotten.
        self._floor.rest(self._name)
        await self._do(lambda db: book.heed(db, self._name, orders, self._clock.now()))
        if not self.heard:
            _log.info("hub %s answers", self._name)
        self.heard = True
        await self._floor.want(self._name, self._wanted(orders))
        await self._enrol()

    def _explain(self, db: Db, words: Mapping[str, str]) -> dict[str, str]:
        """Say of each site what is wrong there, or else why no more is taken on."""
        told = {row[0]: row[4] for row in db.rows("fed_all")}
        return {theirs: said or told.get(self._name, "") for theirs, said in words.items()}

    def _wanted(self, orders: FactoryOrders) -> list[Wanted]:
        """Understand what is wanted; a hub gets nothing at sites that are not for it."""
        found = []
        for order in orders.sites:
            ours = self._known.hub.sites.get(order.site)
            if ours is None:
                continue
            for one in order.wanted:
                objection = self._known.hub.objection(one.wish)
                try:
                    wish.check(one.wish)
                except errors.UsageError as error:
                    objection = objection or str(error)
                # Of what is refused nothing is kept: it may be of any size.
                kept = Wish() if objection else self._bounded(one.wish, ours)
                claim = Claim(self._name, one.pilot, ours, kept.cpus)
                found.append(Wanted(claim, order.site, kept, objection[:LONGEST]))
        return found

    def _bounded(self, asked: Wish, ours: str) -> Wish:
        """Give a wall time to a pilot that names none, or it would have what the queue allows."""
        usual = self._known.times.get(ours)
        return asked if asked.time or usual is None else structs.replace(asked, time=usual)

    async def _enrol(self) -> None:
        """Get secrets for pilots that were taken on and not submitted."""
        now = self._clock.now()
        rows = await self._do(lambda db: db.rows("guest_unpapered", hub=self._name))
        here = {row[2] for row in rows}
        self._secrets = {
            guest: one for guest, one in self._secrets.items()
            if guest in here and now - one[1] < _OLD_S
        }  # fmt: skip
        lacking: dict[str, dict[int, int]] = {}
        for theirs, ours, guest, remote in rows:
            if guest not in self._secrets and self._ways.up(ours):
                lacking.setdefault(theirs, {})[remote] = guest
        for theirs, some in lacking.items():
            numbers = tuple(some)
            for at in range(0, len(numbers), MOST_SECRETS):
                part = numbers[at : at + MOST_SECRETS]
                found = await self._caller.enrol(theirs, part)
                crash.point("feed.enrolled")
                for one in found.secrets:
                    if one.pilot in some:
                        self._secrets[some[one.pilot]] = (one.secret, now)

    async def _note(self, error: errors.PilotageError, tries: int) -> None:
        """Say what is wrong; a hub that is away wants nothing meanwhile."""
        self.heard = False
        words = f"{error}; {error.hint}" if error.hint else str(error)
        if tries == 0:
            _log.warning("hub %s: %s", self._name, words)
        self._floor.rest(self._name)
        await self._do(lambda db: db.run("fed_trouble", hub=self._name, trouble=words))

    async def _do(self, step: Callable[[Db], _T]) -> _T:
        return await wrap_future(self._writer.submit(step))
