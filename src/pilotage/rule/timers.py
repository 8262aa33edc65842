"""Timers: fire the rules that wait for points in time."""

from __future__ import annotations

import anyio
import anyio.to_thread

from pilotage.base.clock import Clock
from pilotage.base.wakeup import Wakeup, patience
from pilotage.event import records, timer
from pilotage.rule.intake import Intake
from pilotage.rule.model import Rule, TimerPattern
from pilotage.store import Db, Writer


class Timers:
    """Fires the rules that wait for points in time."""

    def __init__(self, intake: Intake, writer: Writer, clock: Clock, bell: Wakeup) -> None:
        """Ring `bell` when the rules have changed."""
        self._intake = intake
        self._writer = writer
        self._clock = clock
        self._bell = bell

    async def run(self) -> None:
        """Keep time until cancelled."""
        while True:
            soonest = None
            for rule in self._intake.rules.values():
                if isinstance(rule.pattern, TimerPattern):
                    due = await self._serve(rule, rule.pattern)
                    soonest = due if soonest is None else min(soonest, due)
            await self._bell.wait(patience(soonest, self._clock.now()))

    async def _serve(self, rule: Rule, pattern: TimerPattern) -> float:
        """Fire the ticks that are due; return when the next one is."""
        source, now = f"timer {rule.name}", self._clock.now()
        last = await self._writer.run(lambda db: _since(db, source, now))
        when = (pattern.every, pattern.cron, pattern.zone)
        ticks = timer.missed(*when, last, now, pattern.catch_up)
        if timer.next_tick(*when, last) <= now:
            events = [timer.tick(rule.name, at, now) for at in ticks]
            last = now

            def note(db: Db) -> None:
                records.advance(db, source, repr(now))

            await anyio.to_thread.run_sync(self._intake.take, events, note)
        return timer.next_tick(*when, last)


def _since(db: Db, source: str, now: float) -> float:
    """Say when a timer last fired; a new one begins now."""
    found = records.cursor(db, source)
    if found is None:
        records.advance(db, source, repr(now))
    return now if found is None else float(found)
