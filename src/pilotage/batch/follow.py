"""Looks after the jobs of a site while they are there: what they write, and why they wait."""

from __future__ import annotations

import contextlib

from pilotage.batch.driver import Driver
from pilotage.batch.held import House
from pilotage.batch.homing import Data
from pilotage.batch.job import Room
from pilotage.batch.outward import ODD
from pilotage.batch.progress import Attempt, Telling


class Follow:
    """Follows the jobs of one site."""

    def __init__(
        self, name: str, driver: Driver, house: House, data: Data, telling: Telling
    ) -> None:
        """Take whose jobs they are, and who tells people of them."""
        self._name = name
        self._driver = driver
        self._house = house
        self._data = data
        self._telling = telling
        #: What people were last told is wrong with the site.
        self._told = ""

    @property
    def trouble(self) -> str:
        """Why a job waits; empty if the site has no trouble."""
        return f"its site has trouble: {self._told}" if self._told else ""

    async def look(self) -> None:
        """Bring home what running jobs write, and tell what keeps the others."""
        await self._explain()
        writing = [
            (one, Room(out.root, out.key, work.place))
            for attempt, (out, work) in self._house.out.items()
            if work.began and not work.over and (one := self._house.guests.get(attempt))
        ]
        if writing and self._driver.remote.up:
            with contextlib.suppress(*ODD):
                await self._data.logs(writing)

    async def _explain(self) -> None:
        """Tell with each job that does not run what is wrong with its site, when that changes."""
        trouble = self._driver.remote.trouble or self._driver.trouble
        if trouble == self._told:
            return
        self._told = trouble
        by_words: dict[str, list[Attempt]] = {}
        for attempt in self._house.guests:
            out, work = self._house.out.get(attempt, (None, None))
            if work is None or not work.began:
                usual = out.say(self._name, work.words) if out and work else ""
                by_words.setdefault(self.trouble or usual, []).append(attempt)
        for words, attempts in by_words.items():
            await self._telling.say(attempts, words)
