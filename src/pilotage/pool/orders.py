"""The pilots that this hub wants at a batch system that it drives, and what each needs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import anyio.to_thread
import msgspec

from pilotage.base import errors, text
from pilotage.base.owner import me
from pilotage.batch.pilot_request import PilotRequest
from pilotage.pilot.model import State
from pilotage.pilot.table import OVER, Roster
from pilotage.project import tokens
from pilotage.store import Db, Writer

#: For how long a pilot that waits in a batch queue may still enrol, in seconds.
WEEK_S = 7 * 86400.0


class Home(msgspec.Struct, frozen=True):
    """A hub as pilots find it."""

    #: What the door is called that leads to it from a login node.
    door: str
    url: str
    #: The certificate that vouches for it, as text; empty if none is needed.
    vouch: str
    #: The port of this machine that leads to it; 0 if none does yet.
    port: int


class Papers(msgspec.Struct, frozen=True):
    """What pilots of one hub need to find it and to be let in."""

    home: Home
    #: By our number: the secret that lets it in, once, and the name that it goes by.
    secrets: dict[int, str]
    names: dict[int, str]


class Lot(msgspec.Struct, frozen=True):
    """Pilots that are alike and go to one hub."""

    wish: PilotRequest
    numbers: list[int]


class Address(msgspec.Struct, frozen=True):
    """Where pilots find the hub, as `hub.json` says."""

    url: str
    #: File of the certificate that vouches for it; empty if none is needed.
    ca: str = ""


class Own:
    """The hub of this process, which wants pilots for its own jobs."""

    def __init__(self, site: str, roster: Roster, writer: Writer, address: Path) -> None:
        """Get ready; `address` is the file that says where the hub is."""
        self._site = site
        self._roster = roster
        self._writer = writer
        self._address = address

    async def wanted(self) -> list[Lot]:
        """List the pilots that shall be submitted; end those that were called off before."""
        rows = await self._writer.run(lambda db: db.rows("pilot_wanted", site=self._site))
        lots: dict[tuple[str, str], list[int]] = {}
        for number, pool, body, asked in rows:
            if asked:
                await self.over(number, "called off before it was submitted", stopped=True)
            else:
                lots.setdefault((pool, body), []).append(number)
        return [
            Lot(msgspec.json.decode(body, type=PilotRequest), numbers)
            for (_, body), numbers in lots.items()
        ]

    async def unwanted(self) -> set[int]:
        """List pilots that are submitted, and that nobody wants any more."""
        rows = await self._writer.run(lambda db: db.rows("pilot_unwanted", site=self._site))
        return {number for (number,) in rows}

    async def homes(self, numbers: Iterable[int]) -> list[Home]:
        """Say where this hub is, if its port is open."""
        del numbers
        with contextlib.suppress(errors.Unavailable):
            return [await home(self._address)]
        return []

    async def wish(self, number: int) -> PilotRequest:
        """Say what a pilot is to have."""
        _, body = await self._writer.run(lambda db: db.rows("pilot_wish", id=number)[0])
        return msgspec.json.decode(body, type=PilotRequest)

    async def papers(self, numbers: Sequence[int]) -> Papers:
        """Make a secret for each pilot, which counts once."""
        here, now = await home(self._address), self._roster.now()

        def mint(db: Db) -> dict[int, str]:
            made = {}
            for number in numbers:
                pool, _ = db.rows("pilot_wish", id=number)[0]
                made[number] = tokens.mint(
                    db, tokens.Scope.ENROL, me(), now=now, lifetime=WEEK_S, pool=pool,
                    site=self._site, label=f"pilot {number}", uses=1, pilot=number,
                )[0]  # fmt: skip
            return made

        names = {number: f"{self._site}-{number}" for number in numbers}
        return Papers(here, await self._writer.run(mint), names)

    async def said(self, numbers: Sequence[int], words: str, *, known: bool) -> None:
        """Write down what is said of pilots that have not come, and whether they are submitted."""
        query, ids = "pilot_queued" if known else "pilot_say", text.dump(numbers)
        await self._writer.run(lambda db: db.run(query, ids=ids, reason=words))

    async def begun(self, numbers: Sequence[int]) -> None:
        """Hear that pilots run; they say so themselves, too."""

    async def over(self, number: int, words: str, *, stopped: bool) -> None:
        """End a pilot that never came, and give up one that did and has not left."""
        state, now = State.DOWN if stopped else State.FAILED, self._roster.now()
        ended = await self._writer.run(
            lambda db: db.value("pilot_never", id=number, state=state, reason=words, now=now)
        )
        pilot = self._roster.pilots.get(number)
        if ended is None and not stopped and pilot is not None and pilot.state not in OVER:
            await self._roster.move(pilot, State.LOST, words)


async def home(address: Path) -> Home:
    """Return where this hub is, as a file says; `Unavailable` while its port is closed."""
    try:
        body = await anyio.to_thread.run_sync(address.read_bytes)
    except FileNotFoundError:
        message = "the hub has no port open for pilots"
        raise errors.Unavailable(message, hint="`pilotage up` opens it") from None
    found = msgspec.json.decode(body, type=Address)
    vouch = await anyio.to_thread.run_sync(_read, found.ca)
    return Home("hub", found.url, vouch, int(found.url.rstrip("/").rpartition(":")[2]))


def _read(file: str) -> str:
    return Path(file).read_text(encoding="utf-8") if file else ""
