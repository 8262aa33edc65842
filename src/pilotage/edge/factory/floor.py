"""The floor on which hubs meet: what each wants and may have, and who is taken on next."""

from __future__ import annotations

import functools
from asyncio import wrap_future
from collections.abc import Mapping

from pilotage.agent.share import Limit, Verdict, share
from pilotage.base import crash
from pilotage.base.clock import Clock
from pilotage.batch import records
from pilotage.edge.factory import book
from pilotage.edge.factory.book import Wanted
from pilotage.edge.factory.wire import MOST_HELD
from pilotage.store import Db, Writer


class Floor:
    """Takes pilots on for all hubs together, so that none takes what is another's."""

    def __init__(self, writer: Writer, clock: Clock, room: Mapping[str, int]) -> None:
        """Take how many pilots may be at each site at once."""
        self._writer = writer
        self._clock = clock
        self._room = room
        self._limits: dict[str, Limit] = {}
        #: What each hub wants by its last word.
        self._wanted: dict[str, list[Wanted]] = {}

    def enter(self, hub: str, limit: Limit) -> None:
        """Let a hub have something."""
        self._limits[hub] = limit

    def leave(self, hub: str) -> None:
        """Let a hub have nothing more."""
        self._limits.pop(hub, None)
        self._wanted.pop(hub, None)

    def rest(self, hub: str) -> None:
        """Let a hub have nothing more until it says again what it wants."""
        self._wanted.pop(hub, None)

    async def want(self, hub: str, wanted: list[Wanted]) -> None:
        """Hear what a hub wants, and take on what may be."""
        self._wanted[hub] = wanted
        now = self._clock.now()
        crash.point("feed.heeded")
        # As it is now: the writer has a thread of its own, and hubs come and go meanwhile.
        step = functools.partial(
            self._turn, now=now, wanted=dict(self._wanted), limits=dict(self._limits)
        )
        await wrap_future(self._writer.submit(step))
        crash.point("feed.taken")

    def _turn(
        self, db: Db, now: float, wanted: Mapping[str, list[Wanted]], limits: Mapping[str, Limit]
    ) -> None:
        """Take pilots on in one transaction; it may be run again if that fails."""
        uses, there, leaving = book.uses(db)
        held, left = book.held(db), dict[str, list[Wanted]]()
        for hub, some in wanted.items():
            taken = book.known(db, hub, [one.claim.number for one in some])
            left[hub] = [one for one in some if one.claim.number not in taken]
            # All must go into one report, and a hub may never say that it has heard of ends.
            del left[hub][max(0, MOST_HELD - held.get(hub, 0)) :]
            book.take(db, [one for one in left[hub] if one.objection], now)
        fit = {hub: [one for one in some if not one.objection] for hub, some in left.items()}
        drained = {site for site in self._room if records.asked(db, site) == "drain"}
        verdict = share(
            {
                hub: [one.claim for one in some if one.claim.site not in drained]
                for hub, some in fit.items()
            },
            limits, uses,
            {site: most - there.get(site, 0) for site, most in self._room.items()}, leaving,
        )  # fmt: skip
        chosen = {(one.hub, one.number) for one in verdict.taken}
        for hub, some in fit.items():
            book.take(db, [one for one in some if (hub, one.claim.number) in chosen], now)
        for (hub, site), count in verdict.back.items():
            book.give_back(db, hub, site, count)
        self._show(db, fit, verdict, drained)

    def _show(
        self, db: Db, fit: Mapping[str, list[Wanted]], verdict: Verdict, drained: set[str]
    ) -> None:
        for hub, some in fit.items():
            short = len(some) - sum(one.hub == hub for one in verdict.taken)
            shut = sorted({one.claim.site for one in some} & drained)
            words = verdict.why.get(hub) or (f"{shut[0]} is drained" if shut else "")
            db.run("fed_show", hub=hub, wanted=short, words=words)
