"""The pilots that hubs want at one site of a factory, as what starts them sees them."""

from __future__ import annotations

from asyncio import wrap_future
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from pilotage.base import errors, text
from pilotage.batch.wish import Wish
from pilotage.edge.factory.book import ROOM
from pilotage.edge.factory.feeder import Feeder
from pilotage.pool.orders import Home, Lot, Papers
from pilotage.store import Db, Writer

_T = TypeVar("_T")
_OFF = "called off before it was submitted"


class Guests:
    """All hubs together, as the patron of one site; each pilot has the papers of its own hub."""

    def __init__(
        self, site: str, writer: Writer, feeders: Mapping[str, Feeder], ports: Mapping[str, int]
    ) -> None:
        """Take who speaks with each hub, and the port here that leads to each."""
        self._site = site
        self._writer = writer
        self._feeders = feeders
        self._ports = ports

    async def wanted(self) -> list[Lot]:
        """List the pilots that have their papers; end those that were called off before."""
        rows = await self._do(lambda db: db.rows("guest_waiting", site=self._site))
        lots: dict[tuple[str, str], list[int]] = {}
        for number, hub, body, asked in rows:
            if asked:
                await self.over(number, _OFF, stopped=True)
            elif hub in self._feeders and self._feeders[hub].secret(number):
                lots.setdefault((hub, body), []).append(number)
        return [
            Lot(msgspec.json.decode(body, type=Wish), numbers)
            for (_, body), numbers in lots.items()
        ]

    async def unwanted(self) -> set[int]:
        """List pilots that are submitted, and that nobody wants any more."""
        rows = await self._do(lambda db: db.rows("guest_unwanted", site=self._site))
        return {number for (number,) in rows}

    async def homes(self, numbers: Iterable[int]) -> list[Home]:
        """Say to which hubs some pilots go."""
        hubs = {row[1] for row in await self._rows(list(numbers))}
        return [self._home(hub) for hub in sorted(hubs) if hub in self._feeders]

    async def wish(self, number: int) -> Wish:
        """Say what a pilot is to have."""
        (row,) = await self._rows([number])
        return msgspec.json.decode(row[4], type=Wish)

    async def papers(self, numbers: Sequence[int]) -> Papers:
        """Hand out what the hub of these pilots gave for them."""
        rows = await self._rows(numbers)
        hub = rows[0][1]
        if hub not in self._feeders:
            raise errors.Unavailable(f"hub {hub} has no good file here now")
        feeder = self._feeders[hub]
        secrets = {number: feeder.secret(number) for number in numbers}
        if not all(secrets.values()):
            raise errors.Unavailable(f"hub {hub} has not given all secrets yet")
        names = {number: f"{theirs}-{remote}" for number, _, remote, theirs, _ in rows}
        return Papers(self._home(hub), secrets, names)

    def _home(self, hub: str) -> Home:
        known = self._feeders[hub].known
        return Home(f"hub-{hub}", known.hub.url, known.vouch, self._ports.get(hub, 0))

    async def said(self, numbers: Sequence[int], words: str, *, known: bool) -> None:
        """Write down what is said of pilots that wait, and whether they are submitted."""
        state, ids = "submitted" if known else "waits", text.dump(numbers)
        await self._do(lambda db: db.run("guest_say", ids=ids, reason=words, state=state))

    async def begun(self, numbers: Sequence[int]) -> None:
        """Write down that pilots run."""
        ids = text.dump(numbers)
        await self._do(lambda db: db.run("guest_begin", ids=ids, room=ROOM))

    async def over(self, number: int, words: str, *, stopped: bool) -> None:
        """Write down that a pilot is over; its hub hears of it, however long that takes."""
        await self._do(lambda db: _end(db, number, words, stopped=stopped))

    async def _rows(self, numbers: Sequence[int]) -> list[tuple[int, str, int, str, str]]:
        return await self._do(lambda db: db.rows("guest_of", ids=text.dump(numbers)))

    async def _do(self, step: Callable[[Db], _T]) -> _T:
        return await wrap_future(self._writer.submit(step))


def _end(db: Db, number: int, words: str, *, stopped: bool) -> None:
    row = db.row("guest_asked", id=number)
    said = row[0] if stopped and row and row[0] else words
    db.run("guest_end", id=number, state="off" if stopped else "ended", reason=said)
