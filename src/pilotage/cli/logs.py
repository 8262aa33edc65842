"""`pilotage logs`: print the output of jobs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from pilotage.base import errors
from pilotage.cli import formatting, job_selector, job_table
from pilotage.cli.answer import Answer, AnswerStream
from pilotage.cli.common import HERE, Common
from pilotage.cli.verbs import Selectors
from pilotage.hub.project import Project
from pilotage.job import logs as written
from pilotage.job.logs import Name
from pilotage.job.model import Attempt, Job

_GLANCE_S = 0.1


def logs(
    selector: Selectors,
    /,
    *,
    follow: Annotated[
        bool, Parameter(name=("--follow", "-f"), help="Follow the output until the jobs end.")
    ] = False,
    stderr: Annotated[bool, Parameter(help="Standard error instead.")] = False,
    attempt: Annotated[int | None, Parameter(help="This attempt; else the last one.")] = None,
    lines: Annotated[
        int | None, Parameter(name=("--lines", "-n"), help="Show only the last N lines.")
    ] = None,
    at: Common = HERE,
) -> Answer | AnswerStream:
    """Print what jobs wrote to standard output."""
    name: Name = "stderr" if stderr else "stdout"
    if lines is not None and lines < 0:
        message = f"cannot print {lines} lines"
        raise errors.UsageError(message, hint="`-n 20` prints the last 20")
    if follow:
        return AnswerStream(_follow(at, selector, name, lines))
    with at.open() as project:
        numbers = job_selector.numbers(project, selector)
        many = len(numbers) > 1
        found = [_one(project, one, name, attempt, lines, many=many) for one in numbers]
    return Answer(
        {"jobs": [one.data for one in found]},
        ids=tuple(numbers),
        notes=tuple(note for one in found for note in one.notes),
        raw=b"".join(one.raw for one in found),
    )


def _one(
    project: Project, number: int, name: Name, attempt: int | None, lines: int | None, *, many: bool
) -> Answer:
    job = project.job(number)
    tried = _attempt(job, project.attempts(number), attempt)
    if tried is None:
        return Answer(
            data=_data(job, 0, name, b""),
            notes=(f"job {number} has not started: `pilotage explain {number}` says why",),
        )
    project.follow(number)
    content = written.read(written.path(tried.dir, name), lines)
    notes = []
    other: Name = "stderr" if name == "stdout" else "stdout"
    if name == "stdout" and not many and (size := written.size(written.path(tried.dir, other))):
        notes.append(f"it wrote {size} bytes to stderr too: `pilotage logs {number} --stderr`")
    if not os.path.isdir(tried.dir):
        flow = tried.starter.removeprefix("flow:")
        if flow != tried.starter:
            steps = f"`pilotage flow show {flow}` shows its steps; their jobs have output"
            return Answer(
                _data(job, tried.number, name, b""),
                notes=(f"job {number} is flow {flow}: {steps}",),
            )
        # Of calls of functions and of jobs on pilots there is a directory only if they wrote.
        gone = f"it wrote nothing, or its directory was removed: {tried.dir}"
        notes = [f"there is no output of job {number}; {gone}"]
    raw = _head(job) + content if many else content
    return Answer(_data(job, tried.number, name, content), notes=tuple(notes), raw=raw)


def _attempt(job: Job, attempts: Sequence[Attempt], wanted: int | None) -> Attempt | None:
    if wanted is None:
        return attempts[-1] if attempts else None
    for one in attempts:
        if one.number == wanted:
            return one
    message = f"job {job.id} has no attempt {wanted}"
    had = formatting.count(len(attempts), "attempt")
    raise errors.NotFound(message, hint=f"it has had {had}: `pilotage job show {job.id}`")


def _head(job: Job) -> bytes:
    return f"==> job {job.id} {job.name} <==\n".encode("utf-8", "surrogateescape")


def _data(job: Job, attempt: int, name: Name, content: bytes) -> dict[str, Any]:
    shown = content.decode("utf-8", "replace")
    return {"id": job.id, "name": job.name, "attempt": attempt, "stream": name, "text": shown}


def _follow(at: Common, selector: Sequence[str], name: Name, lines: int | None) -> Iterator[Answer]:
    """Yield new output of each job in turn, until all have ended."""
    with at.open() as project:
        numbers = job_selector.numbers(project, selector)
        if not project.running() and not all(job_table.ended(project.job(one)) for one in numbers):
            yield Answer(
                {"note": "nothing runs"}, notes=("nothing runs this project: `pilotage up`",)
            )
        places: dict[int, tuple[int, int]] = {}
        last = 0
        while True:
            # States are read before what was written: what a job wrote until its end is then read.
            jobs = [project.job(one) for one in numbers]
            for job in jobs:
                for content in _news(project, job, name, places, lines):
                    head = _head(job) if len(numbers) > 1 and job.id != last else b""
                    last = job.id
                    yield Answer(_data(job, job.attempt, name, content), raw=head + content)
            if all(job_table.ended(job) for job in jobs):
                return
            time.sleep(_GLANCE_S)


def _news(
    project: Project, job: Job, name: Name, places: dict[int, tuple[int, int]], lines: int | None
) -> Iterator[bytes]:
    if not job.attempt:
        return
    project.follow(job.id)
    file = written.path(project.attempts(job.id)[-1].dir, name)
    attempt, start = places.get(job.id, (0, 0))
    if attempt == 0 and lines is not None:
        start = written.size(file) - len(written.read(file, lines))
    elif attempt != job.attempt or written.size(file) < start:
        # Its site runs it again: the log starts from the beginning.
        start = 0
    while content := written.piece(file, start):
        start += len(content)
        yield content
    places[job.id] = (job.attempt, start)
