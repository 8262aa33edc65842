"""Pilots at a site: wanted by this hub, submitted to its batch system, monitored until they end."""

from __future__ import annotations

import contextlib
import logging
import shlex
from typing import Any

import anyio
import msgspec

from pilotage.base import errors
from pilotage.base.supervise import Background
from pilotage.batch import pilot_request, submission
from pilotage.batch.driver import SubmissionDriver
from pilotage.batch.pilot_request import PilotRequest
from pilotage.batch.submission import ArrayTask, Submission, TaskEnd
from pilotage.batch.system import known
from pilotage.batch.system.model import EndCause
from pilotage.batch.tunnels import Tunnels
from pilotage.pool.orders import Home, Lot, Own, Papers
from pilotage.run.model import Launch

_log = logging.getLogger("pilotage.pilot")
_LOOK_S = 1.0
#: How long a pilot has to end what it runs when the batch system takes its node, in seconds.
_GRACE_S = 20.0


class Factory:
    """Has pilots of this hub started at one site."""

    def __init__(self, name: str, driver: SubmissionDriver, doors: Tunnels, patron: Own) -> None:
        """Get ready; nothing happens before `run`."""
        self._name = name
        self._driver = driver
        self._doors = doors
        self._patron = patron
        self._beside = Background(_log, f"pilots of {name}")
        driver.join(self, pilots=True)

    async def run(self) -> None:
        """Submit pilots that are wanted, and call off those that are not wanted any more."""
        while True:
            await anyio.sleep(_LOOK_S)
            await self._call_off()
            await self._let_in()
            lots = await self._patron.wanted()
            site = self._driver.remote.site
            most = site.array if known.arrays(site.batch, site.plugin) else 1
            for lot in lots:
                # Who is called off while the site is away must not wait for it.
                if not self._driver.remote.up:
                    break
                for at in range(0, len(lot.numbers), most):
                    await self._submit(Lot(lot.wish, lot.numbers[at : at + most]))

    async def _submit(self, lot: Lot) -> None:
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
        self, folder: str, number: int, papers: Papers, link: str, asked: PilotRequest
    ) -> dict[str, Any]:
        hello, site = self._driver.remote.hello, self._driver.remote.site
        program = f"{hello.root}/bin/{hello.version}.pyz"
        run = f"{folder}/run"
        argv = [site.python, program, "--hub", papers.home.url, "--link", link]
        argv += ["--secret-file", f"{run}/secret", "--name", papers.names[number]]
        argv += ["--cpus", str(asked.cpus)] if asked.cpus else []
        argv += ["--idle", f"{asked.idle:g}"] if asked.idle is not None else []
        # Most batch systems do not say on the node how long a job may run.
        lasts = pilot_request.lasts(asked, site)
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

    async def _link(self, home: Home) -> str:
        """Say by which way pilots come: by themselves, or through the login node."""
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
        """Have the ways open for pilots that an earlier process had submitted."""
        if not self._driver.remote.up:
            return
        out = self._driver.out.values()
        if numbers := [work.pilot for one in out for work in one.live if work.pilot]:
            for home in await self._patron.homes(numbers):
                # Whoever submits pilots is told what is wrong; these wait until it is not.
                with contextlib.suppress(errors.PilotageError):
                    await self._link(home)

    async def _call_off(self) -> None:
        """Call off pilots that were submitted and that nobody wants any more."""
        unwanted = await self._patron.unwanted()
        found = [
            (one, work)
            for one in self._driver.out.values()
            for work in one.works.values()
            if work.pilot in unwanted and not work.stopping
        ]
        if found:
            self._beside.start(self._driver.stop(found))

    # -- what the driver says --------------------------------------------------------------------

    def begun(self, works: list[tuple[Submission, ArrayTask]], words: str) -> None:
        """Hear that pilots run."""
        del words
        self._beside.start(self._patron.begun([work.pilot for _, work in works]))

    def taken(self, one: Submission) -> None:
        """Hear that the batch system has pilots."""
        self.said(one, "")

    def said(self, one: Submission, words: str) -> None:
        """Hear what is said of pilots that wait there."""
        by_words: dict[str, list[int]] = {}
        for work in one.live:
            by_words.setdefault(one.say(self._name, work.words or words), []).append(work.pilot)
        for told, numbers in by_words.items():
            self._beside.start(self._patron.said(numbers, told, known=one.known))

    def over(self, one: Submission, work: ArrayTask, end: TaskEnd) -> None:
        """Hear that a pilot is over."""
        self._beside.start(self._close(one, work, end))

    async def items(self, one: Submission, key: str) -> list[dict[str, Any]]:
        """Write the orders of pilots anew, under another key."""
        root = (await self._driver.remote.ready()).root
        numbers = {place: work.pilot for place, work in one.works.items()}
        asked = await self._patron.wish(next(iter(numbers.values())))
        found = await self._items(key, root, numbers, asked)
        by_place = dict(zip(numbers, found, strict=True))
        empty: dict[str, Any] = {"launch": None, "inputs": []}
        return [by_place.get(place, empty) for place in range(one.order.count)]

    async def _close(self, one: Submission, work: ArrayTask, end: TaskEnd) -> None:
        words = "called off" if work.stopping else _words(end)
        await self._patron.over(work.pilot, words, stopped=work.stopping)
        await self._driver.forget([(one, work)])


def _words(end: TaskEnd) -> str:
    """Say how the batch job of a pilot ended."""
    if end.evidence is not None:
        return f"its program ended: {end.evidence['end'].get('message') or 'exit 0'}"
    if end.item is None:
        return end.never or "its batch job vanished"
    cause = end.item.cause or EndCause.UNKNOWN
    return f"its batch job is over: {cause}{f' ({end.item.words})' if end.item.words else ''}"
