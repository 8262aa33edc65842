"""`pilotage wait`: wait until jobs have ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from pilotage.base import errors, text, units
from pilotage.cli import formatting, job_counts, job_selector, job_table, live, printing
from pilotage.cli.answer import Answer, Styled, Table
from pilotage.cli.common import HERE, Common
from pilotage.cli.verbs import Selectors
from pilotage.hub.project import Project
from pilotage.job import logs
from pilotage.job.machine import FINAL
from pilotage.job.model import Job, State

_GLANCE_S = 0.1
_TAIL = 50
_FEW = 3
#: Seconds after which a hint is shown.
_STUCK_S = 3.0


def wait(
    selector: Selectors,
    /,
    *,
    timeout: Annotated[
        str, Parameter(help="Stop waiting after `30s`, `1h`, …; the jobs continue.")
    ] = "",
    at: Common = HERE,
) -> Answer:
    """Wait until jobs have ended; the exit status is 1 unless all are done."""
    with at.open() as project:
        numbers = job_selector.numbers(project, selector)
        patience = units.seconds(timeout) if timeout else None
        _until_ended(project, numbers, patience, lambda: None)
        found = [project.job(number) for number in numbers]
        bad = [one for one in found if one.state is not State.DONE]
        for one in bad[:_FEW]:
            _tell(project, one)
        where = job_table.where(project.db, found)
        table = job_table.jobs(bad, project.clock.now(), where)
        data = [job_table.job(one, where.get(one.id)) for one in found]
    return _answer(data, bad, table)


def _answer(found: list[dict[str, Any]], bad: list[Job], table: Table) -> Answer:
    rest = f"{len(bad)} of {formatting.count(len(found), 'job')} did not end well"
    return Answer(
        {"jobs": found, "ok": not bad},
        (table,) if bad and len(found) > 1 else (),
        tuple(one["id"] for one in found),
        (rest,) if bad and len(found) > 1 else (),
        status=1 if bad else 0,
    )


def _until_ended(
    project: Project, numbers: list[int], patience: float | None, glance: Callable[[], None]
) -> None:
    """Wait until no job can continue by itself, and show the progress."""
    start = time.monotonic()
    ids = text.dump(numbers)
    board = live.Board()
    warned = stuck = False
    try:
        while True:
            counts = dict(project.db.rows("job_state_counts", ids=ids))
            glance()
            if all(state in FINAL or state == State.HELD for state in counts):
                return
            if not warned and not project.running():
                warned = True
                printing.say("nothing runs this project now: start `pilotage up`")
            if not stuck and time.monotonic() - start >= _STUCK_S:
                stuck = True
                _mention(project, numbers)
            if patience is not None and time.monotonic() - start >= patience:
                raise _too_late(counts, patience)
            if board.on and len(numbers) > 1:
                rows = project.db.rows("job_name_counts", ids=ids)
                board.draw(job_counts.lines(job_counts.by_name(rows)))
            time.sleep(_GLANCE_S)
    finally:
        board.clear()


def _mention(project: Project, numbers: list[int]) -> None:
    """Report that a job waits for a pool that needs a person."""
    if not (project.root / "pools").is_dir() or not project.running():
        return
    from pilotage.status.explain import JobExplainer

    queued = [one for one in numbers[:_TAIL] if project.job(one).state is State.QUEUED]
    if queued:
        now = project.clock.now()
        witness = JobExplainer(
            project.db, project.settings, now=now, running=True, root=project.root
        )
        known = witness.facts(queued[0])
        if known.pools and not known.hope and known.prospect and not known.prospect.ever:
            said = "; ".join(f"{one.text}: {one.detail}" for one in known.pools[:_FEW])
            printing.say(text.show(f"job {queued[0]} waits: {said}"))


def _too_late(counts: dict[str, int], patience: float) -> errors.TimedOut:
    left = sum(count for state, count in counts.items() if state not in FINAL)
    message = f"{formatting.count(left, 'job')} not ended after {units.for_people(patience)}"
    return errors.TimedOut(message, hint="the work continues: `pilotage status` shows the progress")


def _tell(project: Project, one: Job) -> None:
    """Return the failure of a job, with its last lines of standard error."""
    reason = f": {one.reason}" if one.reason else ""
    printing.say(f"job {one.id} {one.name} is ", formatting.state(one.state), reason)
    attempts = project.attempts(one.id)
    if attempts and (tail := logs.read(logs.path(attempts[-1].dir, "stderr"), _TAIL)):
        printing.say(Styled(f"the end of its stderr ({attempts[-1].dir}/stderr):", "dim"))
        sys.stderr.buffer.write(tail if tail.endswith(b"\n") else tail + b"\n")
        sys.stderr.flush()


def for_one(number: int, at: Common, *, propagate: bool, notes: Sequence[str]) -> Answer:
    """Wait for a job that was just submitted, and pass on what it writes as it does."""
    for note in notes:
        printing.say(note)
    with at.open() as project:
        pump = _Pump(project, number, on=at.mode == "table")
        _until_ended(project, [number], None, pump.pass_on)
        pump.pass_on()
        job = project.job(number)
        data = job_table.job(job, job_table.where(project.db, [job]).get(number))
        attempts = project.attempts(number)
        status = 0 if job.state is State.DONE else 1
        if job.state is not State.DONE:
            _tell(project, job)
        if attempts:
            data["attempts"] = [job_table.attempt(one) for one in attempts]
            if propagate:
                status = _own_status(attempts[-1].exit, attempts[-1].signal, status)
    return Answer(data, ids=(number,), status=status)


def _own_status(code: int | None, signal: int | None, otherwise: int) -> int:
    if signal is not None:
        return 128 + signal
    return code if code is not None else otherwise


class _Pump:
    """Passes on what a job writes to standard output."""

    def __init__(self, project: Project, number: int, *, on: bool) -> None:
        self._project, self._number, self._on = project, number, on
        self._attempt, self._start = 0, 0

    def pass_on(self) -> None:
        """Print what is new."""
        if not self._on or not (attempts := self._project.attempts(self._number)):
            return
        if attempts[-1].number != self._attempt:
            self._attempt, self._start = attempts[-1].number, 0
        self._project.follow(self._number)
        while content := logs.piece(logs.path(attempts[-1].dir, "stdout"), self._start):
            self._start += len(content)
            sys.stdout.buffer.write(content)
            sys.stdout.flush()
