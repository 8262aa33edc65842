"""Pilots at a site: asked for here, submitted to its batch system, and heard of until they end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import shlex
from asyncio import wrap_future
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import msgspec

from pilotage import errors, text
from pilotage.hub import auth
from pilotage.hub.roster import OVER, Roster
from pilotage.job.owner import me
from pilotage.payload.model import Launch
from pilotage.pilot.model import State
from pilotage.site import submission, wish
from pilotage.site.batch import known
from pilotage.site.batch.model import Cause
from pilotage.site.doors import Doors
from pilotage.site.driver import Driver, End
from pilotage.site.submission import Submission, Work
from pilotage.site.wish import Wish
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.pilot")
_T = TypeVar("_T")
_LOOK_S = 1.0
#: For how long a pilot that waits in a batch queue may still enrol, in seconds.
_WEEK_S = 7 * 86400.0
#: How long a pilot has to end what it runs when the batch system takes its node, in seconds.
_GRACE_S = 20.0


class Hub(msgspec.Struct, frozen=True):
    """Where pilots find the hub, as `hub.json` says."""

    url: str
    #: File of the certificate that vouches for it; empty if none is needed.
    ca: str = ""


class Factory:
    """Has pilots started at one site."""

    def __init__(
        self, name: str, driver: Driver, doors: Doors, roster: Roster, writer: Writer,
        address: Path,
    ) -> None:  # fmt: skip
        """Get ready; `address` is the file that says where the hub is."""
        self._name = name
        self._driver = driver
        self._doors = doors
        self._roster = roster
        self._writer = writer
        self._address = address
        self._tasks: set[asyncio.Task[None]] = set()
        driver.join(self, pilots=True)

    async def run(self) -> None:
        """Submit pilots that are asked for, and call off those that are not wanted any more."""
        while True:
            await anyio.sleep(_LOOK_S)
            await self._call_off()
            await self._let_in()
            rows = await self._do(lambda db: db.rows("pilot_wanted", site=self._name))
            wanted: dict[tuple[str, str], list[int]] = {}
            for number, pool, body, asked in rows:
                if asked:
                    await self._never(number, State.DOWN, "called off before it was submitted")
                else:
                    wanted.setdefault((pool, body), []).append(number)
            site = self._driver.remote.site
            most = 1 if site.batch in known.WITHOUT_ARRAYS else site.array
            for (pool, body), numbers in wanted.items():
                for at in range(0, len(numbers), most):
                    await self._submit(pool, body, numbers[at : at + most])

    async def _submit(self, pool: str, body: str, numbers: list[int]) -> None:
        asked = msgspec.json.decode(body, type=Wish)
        root = (await self._driver.remote.ready()).root
        key = submission.new_key()
        works = [Work(place, pilot=number) for place, number in enumerate(numbers)]
        try:
            items = await self._items(key, root, dict(enumerate(numbers)), pool, asked)
        except errors.Unavailable as error:
            await self._do(functools.partial(_say, numbers=numbers, words=str(error)))
            return
        except (errors.PilotageError, OSError) as error:
            for number in numbers:
                await self._never(number, State.FAILED, str(error))
            return
        site = self._driver.remote.site
        program = f"{root}/bin/{self._driver.remote.hello.version}.pyz"
        folder = f"{root}/s/{key}"
        words = shlex.join([site.python, "-I", "-S", program, "job", folder])
        order = wish.order(
            asked, site, key=key, script=f"#!/bin/sh\nexec {words}\n", folder=folder,
            count=len(numbers),
        )  # fmt: skip
        await self._driver.submit(site.batch, order, works, items)

    async def _items(
        self, key: str, root: str, numbers: dict[int, int], pool: str, asked: Wish
    ) -> list[dict[str, Any]]:
        """Write the orders of pilots, each with a secret of its own that counts once."""
        hub = await self._hub()
        link = await self._link(hub)
        vouch = await anyio.to_thread.run_sync(_read, hub.ca)
        now = self._roster.now()

        def mint(db: Db) -> dict[int, str]:
            return {
                place: auth.mint(
                    db, auth.Scope.ENROL, me(), now=now, lifetime=_WEEK_S, pool=pool,
                    site=self._name, label=f"pilot {number}", uses=1, pilot=number,
                )[0]
                for place, number in numbers.items()
            }  # fmt: skip

        secrets = await self._do(mint)
        return [
            self._item(
                f"{root}/s/{key}/{place}", number, secrets[place], hub.url, link, vouch, asked
            )
            for place, number in numbers.items()
        ]

    def _item(
        self, folder: str, number: int, secret: str, url: str, link: str, vouch: str, asked: Wish
    ) -> dict[str, Any]:
        hello, site = self._driver.remote.hello, self._driver.remote.site
        program = f"{hello.root}/bin/{hello.version}.pyz"
        run = f"{folder}/run"
        argv = [site.python, program, "--hub", url, "--link", link]
        argv += ["--secret-file", f"{run}/secret", "--name", f"{self._name}-{number}"]
        argv += ["--cpus", str(asked.cpus)] if asked.cpus else []
        argv += ["--idle", f"{asked.idle:g}"] if asked.idle is not None else []
        argv += [word for one in site.readable for word in ("--readable", one)]
        argv += [word for one in site.writable for word in ("--writable", one)]
        files = {"secret": secret}
        if vouch:
            files["hub.pem"] = vouch
            argv += ["--ca", f"{run}/hub.pem"]
        launch = Launch(
            key=f"pilot.{number}", argv=tuple(argv), env={}, inherit=True, cwd=run, dir=run,
            files=files, grace=_GRACE_S,
        )  # fmt: skip
        return {
            "launch": msgspec.to_builtins(launch), "outputs": {}, "optional": {}, "inputs": [],
            "mount": None, "image": None,
        }  # fmt: skip

    async def _hub(self) -> Hub:
        """Say where the hub is; there is none to be reached while its port is closed."""
        try:
            found = await anyio.to_thread.run_sync(self._address.read_bytes)
        except FileNotFoundError:
            message = "the hub has no port open for pilots"
            raise errors.Unavailable(message, hint="`pilotage up` opens it") from None
        return msgspec.json.decode(found, type=Hub)

    async def _link(self, hub: Hub) -> str:
        """Say by which way pilots come: by themselves, or through the login node."""
        remote = self._driver.remote
        if not remote.site.host:
            return "direct"
        if hub.url.startswith("http:"):
            message = f"{hub.url} is not encrypted: pilots on other machines would show secrets"
            hint = '`tls = "on"` in `[hub]` of pilotage.toml encrypts it'
            raise errors.Denied(message, hint=hint)
        if remote.site.link == "direct":
            return "direct"
        port = int(hub.url.rstrip("/").rpartition(":")[2])
        return f"relay:{self._doors.host}:{await self._doors.open('hub', port)}"

    async def _let_in(self) -> None:
        """Have the way open for pilots that an earlier process had submitted."""
        out = self._driver.out.values()
        if self._driver.remote.up and any(work.pilot for one in out for work in one.live):
            # Whoever submits pilots is told what is wrong; these wait until it is not.
            with contextlib.suppress(errors.PilotageError):
                await self._link(await self._hub())

    # -- what the driver says --------------------------------------------------------------------

    def begun(self, works: list[tuple[Submission, Work]], words: str) -> None:
        """Hear that pilots run; they say so themselves, too."""

    def taken(self, one: Submission) -> None:
        """Hear that the batch system has pilots."""
        self._tell(one, _name(one))

    def said(self, one: Submission, words: str) -> None:
        """Hear what is said of pilots that wait there."""
        self._tell(one, f"{_name(one)}: {words}" if one.known else words)

    def _tell(self, one: Submission, words: str) -> None:
        numbers = [work.pilot for work in one.works.values()]
        say = functools.partial(_say, numbers=numbers, words=words, known=one.known)
        self._spawn(self._do(say))

    def over(self, one: Submission, work: Work, end: End) -> None:
        """Hear that a pilot is over."""
        self._spawn(self._close(one, work, end))

    async def items(self, one: Submission, key: str) -> list[dict[str, Any]]:
        """Write the orders of pilots anew, under another key."""
        root = (await self._driver.remote.ready()).root
        numbers = {place: work.pilot for place, work in one.works.items()}
        first = next(iter(numbers.values()))
        pool, body = await self._do(lambda db: db.rows("pilot_wish", id=first)[0])
        asked = msgspec.json.decode(body, type=Wish)
        found = await self._items(key, root, numbers, pool, asked)
        by_place = dict(zip(numbers, found, strict=True))
        empty: dict[str, Any] = {"launch": None, "inputs": []}
        return [by_place.get(place, empty) for place in range(one.order.count)]

    async def _close(self, one: Submission, work: Work, end: End) -> None:
        words = _words(end)
        if work.stopping:
            await self._never(work.pilot, State.DOWN, "called off")
        elif not await self._never(work.pilot, State.FAILED, words):
            pilot = self._roster.pilots.get(work.pilot)
            if pilot is not None and pilot.state not in OVER:
                await self._roster.move(pilot, State.LOST, words)
        await self._driver.forget([(one, work)])

    async def _never(self, number: int, state: State, words: str) -> bool:
        now = self._roster.now()
        ended = await self._do(
            lambda db: db.value("pilot_never", id=number, state=state, reason=words, now=now)
        )
        return ended is not None

    async def _call_off(self) -> None:
        """Call off pilots that were submitted and that nobody wants any more."""
        rows = await self._do(lambda db: db.rows("pilot_unwanted", site=self._name))
        unwanted = {number for (number,) in rows}
        found = [
            (one, work)
            for one in self._driver.out.values()
            for work in one.works.values()
            if work.pilot in unwanted and not work.stopping
        ]
        if found:
            self._spawn(self._driver.stop(found))

    async def _do(self, step: Callable[[Db], _T]) -> _T:
        return await wrap_future(self._writer.submit(step))

    def _spawn(self, work: Any) -> None:  # noqa: ANN401 - a coroutine of any kind
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.error("pilots of %s: %s", self._name, error, exc_info=error)


def _say(db: Db, numbers: list[int], words: str, *, known: bool = False) -> None:
    """Write down what is said of pilots that have not come, and whether they are submitted."""
    db.run("pilot_queued" if known else "pilot_say", ids=text.dump(numbers), reason=words)


def _read(file: str) -> str:
    return Path(file).read_text(encoding="utf-8") if file else ""


def _name(one: Submission) -> str:
    """Say how the batch system calls a submission."""
    return f"{one.batch} job {one.number}" if one.number else f"a {one.batch} job"


def _words(end: End) -> str:
    """Say how the batch job of a pilot ended."""
    if end.evidence is not None:
        return f"its program ended: {end.evidence['end'].get('message') or 'exit 0'}"
    if end.item is None:
        return end.never or "its batch job vanished"
    cause = end.item.cause or Cause.UNKNOWN
    return f"its batch job is over: {cause}{f' ({end.item.words})' if end.item.words else ''}"
