"""The sources that are neither files nor messages: timers and ends of jobs."""

from __future__ import annotations

from asyncio import wrap_future
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from pilotage.base import crash, text
from pilotage.base.clock import Clock
from pilotage.event import records, timer
from pilotage.event.model import Event, Kind
from pilotage.flow.model import job_key
from pilotage.job.model import State
from pilotage.rule.intake import Intake
from pilotage.rule.model import JobPattern, Rule, TimerPattern
from pilotage.store import Db, Writer

_ENDS = "job ends"
_LONGEST_WAIT_S = 60.0
#: Files that the end of a step tells of.
_MOST_OUTPUTS = 1000
#: A line of a story by its number, and the event that it is, if it is one.
Line = tuple[int, Event | None]


class Bell:
    """Something to wait for that can be rung again and again, from any thread."""

    def __init__(self, call_soon: Callable[..., Any]) -> None:
        """Ring through the event loop's `call_soon_threadsafe`."""
        self._call_soon = call_soon
        self._event = anyio.Event()

    def ring(self) -> None:
        """Wake whoever waits."""
        self._call_soon(self._set)

    def _set(self) -> None:
        self._event.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Wait for the next ring, or some time."""
        with anyio.move_on_after(seconds):
            await self._event.wait()
        self._event = anyio.Event()


def patience(due: float | None, now: float) -> float | None:
    """Say how long to wait for a moment, but not long at once: clocks are set, machines sleep."""
    return None if due is None else min(max(0.0, due - now), _LONGEST_WAIT_S)


class Timers:
    """Fires the rules that wait for points in time."""

    def __init__(self, intake: Intake, writer: Writer, clock: Clock, bell: Bell) -> None:
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
        last = await wrap_future(self._writer.submit(lambda db: _since(db, source, now)))
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


class Ends:
    """Turns the ends of jobs, and of tasks of workflows, into events, in their order."""

    def __init__(self, intake: Intake, writer: Writer, bell: Bell, root: str) -> None:
        """Ring `bell` when jobs ended or the rules have changed."""
        self._intake = intake
        self._root = root
        self._writer = writer
        self._bell = bell
        #: Whether every end so far has been taken.
        self.idle = True

    async def run(self) -> None:
        """Follow the journal until cancelled."""
        while True:
            await self._bell.wait()
            wanted = any(isinstance(one.pattern, JobPattern) for one in self._intake.rules.values())
            while wanted and await self._step():
                pass
            self.idle = True

    async def _step(self) -> bool:
        taken = [await self._follow(source, read) for source, (read, _) in _STORIES.items()]
        return any(taken)

    async def _follow(self, source: str, read: Callable[[Db, int, str], list[Line]]) -> bool:
        """Take some ends of one story; say whether there were any."""

        def some(db: Db) -> list[Line]:
            after = records.cursor(db, source)
            return read(db, int(after), self._root) if after else []

        found = await wrap_future(self._writer.submit(some))
        if not found:
            return False
        events = [event for _, event in found if event is not None]
        last = found[-1][0]

        def note(db: Db) -> None:
            if records.cursor(db, source):  # else the last rule that waits has gone meanwhile
                records.advance(db, source, str(last))
            crash.point("jobevent.before_commit")

        await anyio.to_thread.run_sync(self._intake.take, events, note)
        return True


def start_ends(db: Db, *, wanted: bool) -> None:
    """Begin with the ends from now on, where no rule has waited for ends before.

    The journal is followed from where it was left, also after a restart, while some rule waits.
    """
    for source, (_, newest) in _STORIES.items():
        if not wanted:
            records.advance(db, source, "")
        elif not records.cursor(db, source):
            records.advance(db, source, str(db.value(newest)))


def _ended_jobs(db: Db, after: int, root: str) -> list[Line]:
    found: list[Line] = []
    for seq, time, job, attempt, state, reason, name, rule, depth, step in db.rows(
        "journal_ends", after=after
    ):
        if step:
            # Its workflow tells of it, once what it left was looked at.
            found.append((seq, None))
            continue
        facts = {
            "id": job, "name": name, "rule": rule, "state": state, "reason": reason,
            "attempt": attempt, "depth": depth,
            "outputs": [row[0] for row in db.rows("output_of", job=job)],
        }  # fmt: skip
        if (flow := db.row("flow_by_key", key=job_key(job))) is not None:
            facts |= _of_flow(db, flow[0], state, root)
        found.append((seq, Event(Kind.JOB_ENDED, name, time, str(seq), data=facts, cause=job)))
    return found


def _ended_tasks(db: Db, after: int, root: str) -> list[Line]:
    """Read ends of tasks of workflows elsewhere; those that ran here tell of themselves."""
    found: list[Line] = []
    known: set[str] = set()
    for row in db.rows("flows_ends", after=after):
        (seq, time, ends, flow, name, step, task, item, number, state, reason, site,
         result, whole) = row  # fmt: skip
        if whole:
            whole_flow = _of_flow(db, flow, state, root)
            found.append((seq, _ended_flow(db, (seq, time), flow, state, whole_flow)))
            continue
        # An end has several lines in the story; the version is that of the end.
        version = f"flow-{flow}-{task}-{number}"
        if not ends or version in known:
            found.append((seq, None))
            continue
        known.add(version)
        facts = {
            "id": task, "name": f"{name}/{step}", "rule": "", "state": state, "reason": reason,
            "attempt": number, "depth": 0, "outputs": _left(db, task, number, state, root),
            "flow": flow, "step": step, "item": item,
            "site": site, "result": text.load(result) if result else None,
        }  # fmt: skip
        cause, depth = db.row("flow_cause", flow=flow) or (None, 0)
        facts["depth"] = depth
        event = Event(Kind.JOB_ENDED, f"{name}/{step}", time, version, data=facts, cause=cause)
        found.append((seq, event))
    return found


def _left(db: Db, task: int, number: int, state: str, root: str) -> list[str]:
    """Return the addresses of what a task has left that is done."""
    from pilotage.edge import handoff  # most projects have no workflows
    from pilotage.flow import records as flows
    from pilotage.project import settings

    made = flows.attempt(db, task, number) if state == State.DONE else None
    if made is None or not made.place:
        return []
    place = settings.at_home(made.place, Path(root) / settings.STATE)
    return [
        handoff.address(place, text.load_path(one.name))
        for one in flows.files(db, task, number)[:_MOST_OUTPUTS]
    ]


def _ended_flow(
    db: Db, line: tuple[int, float], flow: int, state: str, facts: dict[str, Any]
) -> Event:
    """Tell of the end of a whole workflow; one that a rule began is told of by its job."""
    name, (seq, time) = facts["flow_name"], line
    facts = {
        "id": flow, "name": name, "rule": "", "state": state, "attempt": 1, "depth": 0,
        "reason": db.value("flow_reason", flow=flow), "outputs": [], **facts,
    }  # fmt: skip
    return Event(Kind.JOB_ENDED, name, time, f"flow-{flow}-{seq}", data=facts)


def _of_flow(db: Db, flow: int, state: str, root: str) -> dict[str, Any]:
    """Say what came out of a workflow that is over."""
    from pilotage.flow import deliver
    from pilotage.flow.ends import outcome  # most projects have no workflows

    name = db.value("flow_name", flow=flow)
    facts: dict[str, Any] = {"flow": flow, "flow_name": name, "result": None}
    if state == State.DONE:
        facts |= {"result": outcome(db, flow), "outputs": deliver.homes(db, flow, root)}
    return facts


#: What tells of ends: how it is read on, and the number of its newest line.
_STORIES: dict[str, tuple[Callable[[Db, int, str], list[Line]], str]] = {
    _ENDS: (_ended_jobs, "journal_last"),
    "flow ends": (_ended_tasks, "flows_story_last"),
}
