"""Providers of pilots: batch systems that this hub drives, and sites with an agent."""

from __future__ import annotations

import contextlib
import functools
import logging
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from pilotage.base import backoff, crash, errors, text
from pilotage.base.clock import Clock
from pilotage.base.owner import me
from pilotage.base.supervise import Background, Supervisor
from pilotage.batch import pilot_request, submission
from pilotage.batch.driver import SubmissionDriver
from pilotage.batch.pilot_request import PilotRequest
from pilotage.batch.submission import ArrayTask, Submission, TaskEnd
from pilotage.batch.system import known
from pilotage.batch.system.model import EndCause
from pilotage.batch.tunnels import Tunnels
from pilotage.edge import pilots, view
from pilotage.edge.message import HubIdentity
from pilotage.edge.order import PilotOrder
from pilotage.edge.pilots import WantedPilot
from pilotage.pilot.model import PilotState
from pilotage.pilot.table import OVER, PilotTable
from pilotage.project import tokens
from pilotage.run.model import Launch
from pilotage.store import Db, Writer

#: For how long a pilot that waits in a batch queue may still enrol, in seconds.
WEEK_S = 7 * 86400.0


class HubEndpoint(msgspec.Struct, frozen=True):
    """The address of a hub, as pilots need it."""

    #: Name of the forwarding that leads to it from a login node.
    door: str
    url: str
    #: CA certificate of the hub, as PEM text; empty if none is needed.
    vouch: str
    #: The port of this machine that leads to it; 0 if none does yet.
    port: int


class PilotPapers(msgspec.Struct, frozen=True):
    """Address and enrolment secrets for pilots of one hub."""

    home: HubEndpoint
    #: By our number: the secret that lets it in, once, and the name that it goes by.
    secrets: dict[int, str]
    names: dict[int, str]


class PilotBatch(msgspec.Struct, frozen=True):
    """Pilots with equal resources for one hub."""

    wish: PilotRequest
    numbers: list[int]


class HubAddress(msgspec.Struct, frozen=True):
    """Address of the hub, as in `hub.json`."""

    url: str
    #: File of the CA certificate; empty if none is needed.
    ca: str = ""


@dataclass(eq=False)
class HubOrders:
    """Orders of the hub of this process."""

    _site: str
    _roster: PilotTable
    _writer: Writer
    #: The file that says where the hub is.
    _address: Path

    async def wanted(self) -> list[PilotBatch]:
        """Return the pilots to submit; end those that were cancelled before."""
        rows = await self._writer.run(lambda db: db.rows("pilot_wanted", site=self._site))
        lots: dict[tuple[str, str], list[int]] = {}
        for number, pool, body, asked in rows:
            if asked:
                await self.over(number, "cancelled before it was submitted", stopped=True)
            else:
                lots.setdefault((pool, body), []).append(number)
        return [
            PilotBatch(msgspec.json.decode(body, type=PilotRequest), numbers)
            for (_, body), numbers in lots.items()
        ]

    async def unwanted(self) -> set[int]:
        """Return submitted pilots that are cancelled."""
        rows = await self._writer.run(lambda db: db.rows("pilot_unwanted", site=self._site))
        return {number for (number,) in rows}

    async def homes(self, numbers: Iterable[int]) -> list[HubEndpoint]:
        """Return where this hub is, if its port is open."""
        del numbers
        with contextlib.suppress(errors.Unavailable):
            return [await home(self._address)]
        return []

    async def wish(self, number: int) -> PilotRequest:
        """Return the resources that a pilot asks for."""
        _, body = await self._writer.run(lambda db: db.rows("pilot_wish", id=number)[0])
        return msgspec.json.decode(body, type=PilotRequest)

    async def papers(self, numbers: Sequence[int]) -> PilotPapers:
        """Create a single-use enrolment token for each pilot."""
        here, now = await home(self._address), self._roster.now()

        def mint(db: Db) -> dict[int, str]:
            made = {}
            for number in numbers:
                pool, _ = db.rows("pilot_wish", id=number)[0]
                made[number] = tokens.mint(
                    db, tokens.TokenScope.ENROL, me(), now=now, lifetime=WEEK_S, pool=pool,
                    site=self._site, label=f"pilot {number}", uses=1, pilot=number,
                )[0]  # fmt: skip
            return made

        names = {number: f"{self._site}-{number}" for number in numbers}
        return PilotPapers(here, await self._writer.run(mint), names)

    async def said(self, numbers: Sequence[int], words: str, *, known: bool) -> None:
        """Store the status text of waiting pilots, and whether they are submitted."""
        query, ids = "pilot_queued" if known else "pilot_say", text.dump(numbers)
        await self._writer.run(lambda db: db.run(query, ids=ids, reason=words))

    async def begun(self, numbers: Sequence[int]) -> None:
        """Handle pilots that started; they report it themselves, too."""

    async def over(self, number: int, words: str, *, stopped: bool) -> None:
        """End a pilot that never started; mark a running one as lost."""
        state, now = PilotState.DOWN if stopped else PilotState.FAILED, self._roster.now()
        ended = await self._writer.run(
            lambda db: db.value("pilot_never", id=number, state=state, reason=words, now=now)
        )
        pilot = self._roster.pilots.get(number)
        if ended is None and not stopped and pilot is not None and pilot.state not in OVER:
            await self._roster.move(pilot, PilotState.LOST, words)


async def home(address: Path) -> HubEndpoint:
    """Return where this hub is, as a file says; `Unavailable` while its port is closed."""
    try:
        body = await anyio.to_thread.run_sync(address.read_bytes)
    except FileNotFoundError:
        message = "the hub has no port open for pilots"
        raise errors.Unavailable(message, hint="`pilotage up` opens it") from None
    found = msgspec.json.decode(body, type=HubAddress)
    vouch = await anyio.to_thread.run_sync(_read, found.ca)
    return HubEndpoint("hub", found.url, vouch, int(found.url.rstrip("/").rpartition(":")[2]))


def _read(file: str) -> str:
    return Path(file).read_text(encoding="utf-8") if file else ""


_log = logging.getLogger("pilotage.pilot")
_LOOK_S = 1.0
#: How long a pilot has to end what it runs when the batch system takes its node, in seconds.
_GRACE_S = 20.0


class Factory:
    """Has pilots of this hub started at one site."""

    def __init__(
        self, name: str, driver: SubmissionDriver, doors: Tunnels, patron: HubOrders
    ) -> None:
        """Get ready; nothing happens before `run`."""
        self._name = name
        self._driver = driver
        self._doors = doors
        self._patron = patron
        self._beside = Background(_log, f"pilots of {name}")
        driver.join(self, pilots=True)

    async def run(self) -> None:
        """Submit pilots that are wanted, and cancel those that are not wanted any more."""
        while True:
            await anyio.sleep(_LOOK_S)
            await self._call_off()
            await self._let_in()
            lots = await self._patron.wanted()
            site = self._driver.remote.site
            most = site.array if known.arrays(site.batch, site.plugin) else 1
            for lot in lots:
                # Pilots cancelled while the site is unreachable must not wait for it.
                if not self._driver.remote.up:
                    break
                for at in range(0, len(lot.numbers), most):
                    await self._submit(PilotBatch(lot.wish, lot.numbers[at : at + most]))

    async def _submit(self, lot: PilotBatch) -> None:
        root = (await self._driver.remote.ready()).root
        key = submission.new_key()
        works = [ArrayTask(place, pilot=number) for place, number in enumerate(lot.numbers)]
        try:
            items = await self._items(key, root, dict(enumerate(lot.numbers)), lot.wish)
        except errors.Unavailable as error:
            await self._patron.said(lot.numbers, str(error), known=False)
            return
        except (errors.PilotageError, OSError) as error:
            for number in lot.numbers:
                await self._patron.over(number, str(error), stopped=False)
            return
        site = self._driver.remote.site
        program = f"{root}/bin/{self._driver.remote.hello.version}.pyz"
        folder = f"{root}/s/{key}"
        words = shlex.join([site.python, "-I", "-S", program, "job", folder])
        order = pilot_request.order(
            lot.wish, site, key=key, script=f"#!/bin/sh\nexec {words}\n", folder=folder,
            count=len(lot.numbers),
        )  # fmt: skip
        await self._driver.submit(site.batch, order, works, items)

    async def _items(
        self, key: str, root: str, numbers: dict[int, int], asked: PilotRequest
    ) -> list[dict[str, Any]]:
        """Write the orders of pilots of one hub, each with a secret of its own."""
        papers = await self._patron.papers(list(numbers.values()))
        link = await self._link(papers.home)
        return [
            self._item(f"{root}/s/{key}/{place}", number, papers, link, asked)
            for place, number in numbers.items()
        ]

    def _item(
        self, folder: str, number: int, papers: PilotPapers, link: str, asked: PilotRequest
    ) -> dict[str, Any]:
        hello, site = self._driver.remote.hello, self._driver.remote.site
        program = f"{hello.root}/bin/{hello.version}.pyz"
        run = f"{folder}/run"
        argv = [site.python, program, "--hub", papers.home.url, "--link", link]
        argv += ["--secret-file", f"{run}/secret", "--name", papers.names[number]]
        argv += ["--cpus", str(asked.cpus)] if asked.cpus else []
        argv += ["--idle", f"{asked.idle_seconds:g}"] if asked.idle_seconds is not None else []
        # Most batch systems do not say on the node how long a job may run.
        lasts = asked.lifetime(site)
        argv += ["--lifetime", f"{lasts:.0f}"] if lasts else []
        argv += ["--cache-folder", site.cache_folder] if site.cache_folder else []
        argv += [word for one in site.readable for word in ("--readable", one)]
        argv += [word for one in site.writable for word in ("--writable", one)]
        files = {"secret": papers.secrets[number]}
        if papers.home.vouch:
            files["hub.pem"] = papers.home.vouch
            argv += ["--ca", f"{run}/hub.pem"]
        launch = Launch(
            key=f"pilot.{number}", argv=tuple(argv), env={}, inherit=True, cwd=run, dir=run,
            files=files, grace=_GRACE_S,
        )  # fmt: skip
        return {
            "launch": msgspec.to_builtins(launch), "outputs": {}, "optional": {}, "inputs": [],
            "mount": None, "image": None,
        }  # fmt: skip

    async def _link(self, home: HubEndpoint) -> str:
        """Return by which way pilots come: by themselves, or through the login node."""
        site = self._driver.remote.site
        if home.url.startswith("http:") and site.batch != "local":
            message = f"{home.url} is not encrypted: pilots on other machines would show secrets"
            hint = '`tls = "on"` in `[hub]` of pilotage.toml encrypts it'
            raise errors.Denied(message, hint=hint)
        if not (site.host or site.login) or site.link == "direct":
            return "direct"
        if not home.port:
            raise errors.Unavailable("there is no way through the login node yet")
        return f"relay:{self._doors.host}:{await self._doors.open(home.door, home.port)}"

    async def _let_in(self) -> None:
        """Open the links for pilots that an earlier process had submitted."""
        if not self._driver.remote.up:
            return
        out = self._driver.out.values()
        if numbers := [work.pilot for one in out for work in one.live if work.pilot]:
            for home in await self._patron.homes(numbers):
                # Submitting pilots reports the error; running ones wait until it is gone.
                with contextlib.suppress(errors.PilotageError):
                    await self._link(home)

    async def _call_off(self) -> None:
        """Cancel submitted pilots that are no longer wanted."""
        unwanted = await self._patron.unwanted()
        found = [
            (one, work)
            for one in self._driver.out.values()
            for work in one.works.values()
            if work.pilot in unwanted and not work.stopping
        ]
        if found:
            self._beside.start(self._driver.stop(found))

    # -- reports of the driver -------------------------------------------------------------------

    def begun(self, works: list[tuple[Submission, ArrayTask]], words: str) -> None:
        """Handle pilots that started."""
        del words
        self._beside.start(self._patron.begun([work.pilot for _, work in works]))

    def taken(self, one: Submission) -> None:
        """Handle pilots that the batch system accepted."""
        self.said(one, "")

    def said(self, one: Submission, words: str) -> None:
        """Handle the status text of waiting pilots."""
        by_words: dict[str, list[int]] = {}
        for work in one.live:
            by_words.setdefault(one.say(self._name, work.words or words), []).append(work.pilot)
        for told, numbers in by_words.items():
            self._beside.start(self._patron.said(numbers, told, known=one.known))

    def over(self, one: Submission, work: ArrayTask, end: TaskEnd) -> None:
        """Handle the end of a pilot."""
        self._beside.start(self._close(one, work, end))

    async def items(self, one: Submission, key: str) -> list[dict[str, Any]]:
        """Write the orders of pilots again, under another key."""
        root = (await self._driver.remote.ready()).root
        numbers = {place: work.pilot for place, work in one.works.items()}
        asked = await self._patron.wish(next(iter(numbers.values())))
        found = await self._items(key, root, numbers, asked)
        by_place = dict(zip(numbers, found, strict=True))
        empty: dict[str, Any] = {"launch": None, "inputs": []}
        return [by_place.get(place, empty) for place in range(one.order.count)]

    async def _close(self, one: Submission, work: ArrayTask, end: TaskEnd) -> None:
        words = "cancelled" if work.stopping else _words(end)
        await self._patron.over(work.pilot, words, stopped=work.stopping)
        await self._driver.forget([(one, work)])


def _words(end: TaskEnd) -> str:
    """Return how the batch job of a pilot ended."""
    if end.evidence is not None:
        return f"its program ended: {end.evidence['end'].get('message') or 'exit 0'}"
    if end.item is None:
        return end.never or "its batch job vanished"
    cause = end.item.cause or EndCause.UNKNOWN
    return f"its batch job is over: {cause}{f' ({end.item.words})' if end.item.words else ''}"


_log = logging.getLogger("pilotage.pilot")
_ORDER_S = 1.0
#: After an error it is tried again in 5 s.
_RESTART = backoff.fixed(5.0)
#: Characters of the name of a pilot.
_LONGEST = 128


class EdgePilots:
    """Orders pilots at sites with an agent, and marks those as lost whose batch jobs ended."""

    def __init__(
        self, writer: Writer, roster: PilotTable, address: HubIdentity, file: Path, clock: Clock
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
            await anyio.sleep(_ORDER_S)

    async def _look(self) -> None:
        try:
            found: HubEndpoint | str = await home(self._file)
        except errors.Unavailable as error:
            found = str(error)
        turn = functools.partial(self._turn, home=found, now=self._now())
        ordered, ended = await self._writer.run(turn)
        if ordered:
            crash.point("pilot.ordered")
        for number, words in ended:
            # One that has left by itself stays as it is.
            await self._roster.move(await self._roster.find(number), PilotState.LOST, words)
            await self._writer.run(functools.partial(_forget, number=number))

    def _turn(
        self, db: Db, home: HubEndpoint | str, now: float
    ) -> tuple[int, list[tuple[int, str]]]:  # fmt: skip
        """Order and cancel pilots; return the number of orders, and the pilots that ended."""
        ordered = self._order(db, home, now)
        pilots.cancel_unwanted(db, self._address, now)
        return ordered, [(number, words) for number, words in db.rows("edge_pilots_ended")]

    def _order(self, db: Db, home: HubEndpoint | str, now: float) -> int:
        """Order wanted pilots or store why not; return the number ordered."""
        sites, ordered = view.pilot_sites(db, now), 0
        for one in pilots.wanted(db, list(sites), now):
            if closed := sites[one.site].closed:
                pilots.say(db, one, closed)
            elif isinstance(home, str):
                pilots.say(db, one, home)
            else:
                ordered += self._order_one(db, one, home, now)
        return ordered

    def _order_one(self, db: Db, one: WantedPilot, home: HubEndpoint, now: float) -> bool:
        secret, number = tokens.mint(
            db, tokens.TokenScope.ENROL, me(), now=now, lifetime=WEEK_S, pool=one.pool,
            site=one.site, label=f"pilot {one.number}", uses=1, pilot=one.number,
        )  # fmt: skip
        name = f"{one.site}-{one.number}"[-_LONGEST:]
        asked = PilotOrder(secret, name, home.url, home.vouch, one.wish.idle_seconds)
        try:
            pilots.order(db, one, asked, self._address, now)
        except errors.UsageError as error:
            tokens.revoke(db, number, now)
            pilots.refuse(db, one, str(error), now)
            return False
        return True


def _forget(db: Db, number: int) -> None:
    db.run("pilot_end_drop", pilot=number)
