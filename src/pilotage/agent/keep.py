"""Parts of a process that must go on: one that dies is begun anew, after a while."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

from pilotage.base import errors
from pilotage.base.clock import Clock

_log = logging.getLogger("pilotage.edge")
#: The pauses before a part is begun anew, and how long it must last for the first pause again.
_FIRST_S, _LONGEST_S, _GOOD_S = 0.5, 60.0, 60.0
#: How long a part must have lasted before nothing is wrong with it any more.
_CALM_S = 5.0


class Parts:
    """The parts of one process, and what is wrong with them."""

    def __init__(self, clock: Clock) -> None:
        """Begin with none."""
        self._clock = clock
        #: What was wrong with a part, and until when that counts.
        self._told: dict[str, tuple[str, float]] = {}

    @property
    def troubles(self) -> dict[str, str]:
        """What is wrong, by part; also with one that was begun anew only just now."""
        now = self._clock.steady()
        return {name: words for name, (words, until) in self._told.items() if now < until}

    async def keep(self, name: str, part: Callable[[], Awaitable[None]]) -> None:
        """Run a part until cancelled; whatever it dies of, the others go on."""
        pause = _FIRST_S
        while True:
            began = self._clock.steady()
            try:
                await part()
                told = "it ended by itself"
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # Nobody asked for it: to end so would quietly end all parts beside this one.
                told = "a mistake in Pilotage: it was cancelled by nobody"
                _log.error("%s: %s; it is begun anew", name, told)
            except (errors.PilotageError, OSError) as error:
                # A full disk, or no more files to open, is nobody's mistake here.
                told = str(error)
                _log.error("%s: %s; it is begun anew", name, error)
            except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
                told = f"a mistake in Pilotage: {error}"
                _log.exception("%s: this is a mistake in Pilotage; it is begun anew", name)
            self._told[name] = (told, math.inf)
            if self._clock.steady() - began > _GOOD_S:
                pause = _FIRST_S
            await self._clock.sleep(pause)
            pause = min(_LONGEST_S, 2 * pause)
            self._told[name] = (told, self._clock.steady() + _CALM_S)
