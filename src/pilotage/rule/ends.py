"""Ends of jobs as events for the rules that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import anyio.to_thread

from pilotage.base import crash
from pilotage.base.wakeup import Wakeup
from pilotage.event import records
from pilotage.event.model import Event, EventKind
from pilotage.rule.intake import Intake
from pilotage.rule.model import JobPattern
from pilotage.store import Db, Writer

#: A line of a story by its number, and the event that it is, if it is one.
Line = tuple[int, Event | None]
#: What came out of a job that is a workflow: the store, the job, its state, the project's folder.
OfFlow = Callable[[Db, int, str, str], dict[str, Any]]


class EndSource(NamedTuple):
    """A journal in the store that has ends of jobs or flows."""

    #: Read the lines after a number, for a project in a folder.
    read: Callable[[Db, int, str], list[Line]]
    #: The query for the number of its newest line.
    newest: str


class EndEvents:
    """Turns the ends of jobs, and of tasks of workflows, into events, in their order."""

    def __init__(
        self,
        intake: Intake,
        writer: Writer,
        bell: Wakeup,
        stories: Mapping[str, EndSource],
        root: str,
    ) -> None:
        """Follow `stories`; set `bell` when jobs ended or the rules have changed."""
        self._intake = intake
        self._stories = stories
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
        taken = [await self._follow(name, story) for name, story in self._stories.items()]
        return any(taken)

    async def _follow(self, source: str, story: EndSource) -> bool:
        """Handle some ends of one journal; return whether there were any."""

        def some(db: Db) -> list[Line]:
            after = records.cursor(db, source)
            return story.read(db, int(after), self._root) if after else []

        found = await self._writer.run(some)
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


def start_ends(db: Db, stories: Mapping[str, EndSource], *, wanted: bool) -> None:
    """Begin with the ends from now on, where no rule has waited for ends before.

    The journal is followed from where it was left, also after a restart, while some rule waits.
    """
    for source, story in stories.items():
        if not wanted:
            records.advance(db, source, "")
        elif not records.cursor(db, source):
            records.advance(db, source, str(db.value(story.newest)))


def jobs(of_flow: OfFlow) -> EndSource:
    """Return the story of jobs; `of_flow` adds what came out of jobs that are workflows."""

    def read(db: Db, after: int, root: str) -> list[Line]:
        return _ended_jobs(db, after, root, of_flow)

    return EndSource(read, "journal_last")


def _ended_jobs(db: Db, after: int, root: str, of_flow: OfFlow) -> list[Line]:
    found: list[Line] = []
    for seq, time, job, attempt, state, reason, name, rule, depth, step in db.rows(
        "journal_ends", after=after
    ):
        if step:
            # Its workflow reports it, once its outputs have been checked.
            found.append((seq, None))
            continue
        facts = {
            "id": job, "name": name, "rule": rule, "state": state, "reason": reason,
            "attempt": attempt, "depth": depth,
            "outputs": [row[0] for row in db.rows("output_of", job=job)],
        }  # fmt: skip
        facts |= of_flow(db, job, state, root)
        found.append((seq, Event(EventKind.JOB_ENDED, name, time, str(seq), data=facts, cause=job)))
    return found
