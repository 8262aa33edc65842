"""A site of this hub that only a factory reaches: its words count, and its silence is told."""

from __future__ import annotations

import functools
import logging
from asyncio import wrap_future
from collections.abc import Callable
from typing import TypeVar

import anyio

from pilotage.base import units
from pilotage.batch import records
from pilotage.pilot.model import State
from pilotage.pilot.table import Roster
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.batch")
_T = TypeVar("_T")
_LOOK_S = 1.0
#: How often the store hears how the site is, in seconds.
_SHOW_S = 5.0
#: How long it rests after something that nobody foresaw, in seconds.
_ANEW_S = 30.0
#: A factory that is silent for so long while pilots are wanted is worth an alarm, in seconds.
SILENT_S = 60.0
_NEVER = "no factory has asked yet what is wanted: `pilotage pool serve` at the site does"
_OFF = "called off before it was submitted"


def silence(heard: float | None, now: float) -> str:
    """Say since when a factory is silent; empty if it was heard of lately."""
    if heard is None:
        return _NEVER
    if now - heard < SILENT_S:
        return ""
    return f"its factory was not heard of for {units.for_people(now - heard)}"


class Fed:
    """Looks after one such site, within the process of the hub."""

    def __init__(self, name: str, writer: Writer, roster: Roster) -> None:
        """Get ready; nothing happens before `run`."""
        self._name = name
        self._writer = writer
        self._roster = roster
        #: A factory has some time to be heard of after a start.
        self._began = self._since = roster.now()
        self._shown = 0.0
        self._silent = ""
        self._alarmed = False

    async def run(self) -> None:
        """Look until cancelled."""
        await self._do(lambda db: records.number(db, self._name))
        while True:
            try:
                await self._part()
                await self._do(functools.partial(self._look, now=self._roster.now()))
            except Exception:  # noqa: BLE001 - whatever it is, the hub and the other sites go on
                _log.exception("site %s: this is a mistake in Pilotage", self._name)
                await anyio.sleep(_ANEW_S)
            await anyio.sleep(_LOOK_S)

    async def _part(self) -> None:
        """Give up pilots that had come, and whose batch jobs are over."""
        for number, words in await self._do(lambda db: db.rows("factory_ends", site=self._name)):
            # One that has left by itself stays as it is.
            await self._roster.move(await self._roster.find(number), State.LOST, words)
            await self._do(functools.partial(_forget, number=number))

    def _look(self, db: Db, now: float) -> None:
        # Nobody is known to have these, and whoever has one after all finds its door shut.
        for (number,) in db.rows("factory_unwanted", site=self._name):
            db.run("pilot_never", id=number, state=State.DOWN, reason=_OFF, now=now)
        row = db.row("factory_get", site=self._name)
        heard = None if row is None else row[2]
        silent = silence(heard, now) if now - max(heard or 0.0, self._began) >= SILENT_S else ""
        turned = bool(silent) != bool(self._silent)
        if turned or now >= self._shown + _SHOW_S:
            self._since = now if turned else self._since
            self._silent, self._shown = silent, now
            records.show(db, self._name, silent, self._since, "{}", now)
            self._alarm(db, silent, now)

    def _alarm(self, db: Db, silent: str, now: float) -> None:
        """Tell people when pilots are wanted, and nobody starts any."""
        name = f"site {self._name}"
        waiting = db.value("factory_idle", site=self._name) if silent else 0
        if waiting:
            words = f"{silent}; pilots that are wanted there: {waiting}"
            if not self._alarmed:
                _log.warning("%s: %s", name, words)
            db.run("alarm_put", name=name, words=words, now=now)
        elif self._alarmed:
            db.run("alarm_drop", name=name)
        self._alarmed = bool(waiting)

    async def _do(self, step: Callable[[Db], _T]) -> _T:
        return await wrap_future(self._writer.submit(step))


def _forget(db: Db, number: int) -> None:
    db.run("factory_end_drop", pilot=number)
