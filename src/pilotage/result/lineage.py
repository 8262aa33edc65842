"""Jobs and what caused them, read from the store: by rule for many jobs, job by job for few.

Causes are exact where the store has them: the job that declared the file which fired a rule, the
job whose end did, or a job that was waited for. A rule that fires on a folder is taken to be caused
by the jobs that declared files in it since the rule fired last.
"""

from __future__ import annotations

import os.path
from collections import Counter
from typing import Any

import msgspec

from pilotage.base import text
from pilotage.draw.graph import Graph, GraphEdge, GraphNode
from pilotage.job import records
from pilotage.job.model import Binding, State
from pilotage.rule import files as book
from pilotage.rule.model import FilePattern, JobPattern, MessagePattern, Pattern, TimerPattern
from pilotage.store import Db

#: More jobs than this are a picture of rules only.
MOST_JOBS = 80

#: The state that a group of jobs shows: the first of these that one of them is in.
_LOUD = (State.FAILED, State.REJECTED, State.HELD, State.CANCELLED, State.RUNNING, State.QUEUED)
_KINDS = {State.REJECTED: "failed", State.STAGING_IN: "running", State.STAGING_OUT: "running"}


class JobRun(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a report shows it."""

    id: int
    name: str
    state: State
    #: Why it is in this state.
    reason: str
    binding: Binding
    created: float
    started: float | None
    ended: float | None
    parent: int | None
    #: The kind of the event that made it, and what that happened to.
    event: str
    subject: str
    #: Directory of its last attempt.
    dir: str
    #: Seconds and bytes of its last attempt.
    wall: float | None
    cpu: float | None
    memory: int | None
    #: The number of its last attempt.
    attempt: int

    @property
    def seconds(self) -> float | None:
        """How long its last attempt took."""
        if self.wall is not None or self.started is None or self.ended is None:
            return self.wall
        return self.ended - self.started


def read(db: Db, most: int, states: tuple[State, ...] = ()) -> list[JobRun]:
    """Read the newest jobs, the oldest of them first."""
    written = text.dump([str(state) for state in states])
    return [_ran(row) for row in db.rows("result_jobs", most=most, states=written)]


def _ran(row: tuple[Any, ...]) -> JobRun:
    (number, name, state, reason, binding, created, started, ended, parent, event, subject, folder,
     wall, cpu, memory, attempt) = row  # fmt: skip
    return JobRun(
        id=number,
        name=name,
        state=State(state),
        reason=reason,
        binding=records.read_binding(binding),
        created=created,
        started=started,
        ended=ended,
        parent=parent,
        event=event,
        subject=text.load_path(subject),
        dir=text.load_path(folder or ""),
        wall=wall,
        cpu=cpu,
        memory=memory,
        attempt=attempt,
    )


def trigger(job: JobRun, base: str) -> str:
    """Name what made a job, for people: a file below the project, a topic, a name."""
    if job.binding.paths:
        return f"{len(job.binding.paths)} files"
    path = job.binding.path if job.event.startswith(("file.", "dir.")) else job.subject
    return text.show(path.removeprefix(f"{base}/"))


# -- by rule --------------------------------------------------------------------------------------


def by_rule(db: Db, base: str) -> Graph:
    """Return a node for all jobs of a name, and one for each source of events that made them."""
    counts: dict[str, Counter[State]] = {}
    for name, state, count in db.rows("result_rules"):
        counts.setdefault(name, Counter())[State(state)] += count
    nodes = [_group(name, states) for name, states in counts.items()]
    edges = [
        GraphEdge(f"rule {before}", f"rule {name}", f"{count}")
        for query in ("result_causes", "result_waits")
        for before, name, count in db.rows(query)
    ]
    patterns = {row[0]: book.load_rule(row[3]).pattern for row in db.rows("rule_list")}
    born: Counter[tuple[str, str]] = Counter()
    for name, rule, kind, count, folder in db.rows("result_births"):
        if kind.startswith("dir.") and (writers := db.rows("result_writers", folder=folder)):
            edges += [
                GraphEdge(f"rule {one}", f"rule {name}", f"{files}") for one, files in writers
            ]
        else:
            source = _source(kind, patterns.get(rule), base)
            nodes.append(source)
            born[source.id, f"rule {name}"] += count
    edges += [GraphEdge(source, rule, f"{count}") for (source, rule), count in born.items()]
    return Graph(list({node.id: node for node in nodes}.values()), edges)


def _group(name: str, states: Counter[State]) -> GraphNode:
    words = ", ".join(f"{count} {state}" for state, count in states.most_common())
    loudest = next((state for state in _LOUD if states[state]), State.DONE)
    return GraphNode(f"rule {name}", text.show(name), words, _kind(loudest))


def _source(kind: str, pattern: Pattern | None, base: str) -> GraphNode:
    match pattern:
        case FilePattern(globs=globs, regex=regex):
            words = [one.removeprefix(f"{base}/") for one in globs] or [regex]
            drawn = ("file", "files")
        case TimerPattern(every=every, cron=cron):
            words, drawn = [cron or f"every {every:g} s"], ("timer", "time")
        case MessagePattern(topics=topics):
            words, drawn = list(topics), ("message", "messages")
        case JobPattern(names=names):
            words, drawn = list(names), ("job", "ends of jobs")
        case None:
            # Of a rule that is gone, or of none: a person submitted the job.
            words, drawn = [kind or "by hand"], ("", "events" if kind else "submitted")
    label = text.show(", ".join(words))
    return GraphNode(f"source {label}", label, drawn[1], drawn[0])


def _kind(state: State) -> str:
    return _KINDS.get(state, str(state))


# -- job by job -----------------------------------------------------------------------------------


def by_job(db: Db, jobs: list[JobRun], base: str) -> Graph:
    """Return a node for each job, and edges from the jobs that caused it."""
    nodes = [
        GraphNode(
            f"{job.id}", f"{text.show(job.name)} {job.id}", _short(job, base), _kind(job.state)
        )
        for job in jobs
    ]
    edges = [GraphEdge(f"{job.parent}", f"{job.id}") for job in jobs if job.parent is not None]
    ids = text.dump([job.id for job in jobs])
    edges += [
        GraphEdge(f"{before}", f"{job}") for before, job in db.rows("result_dependencies", ids=ids)
    ]
    return Graph(nodes, edges + _of_folders(db, jobs))


def _short(job: JobRun, base: str) -> str:
    words = trigger(job, base)
    return os.path.basename(words) if job.event.startswith("file.") else words


def _of_folders(db: Db, jobs: list[JobRun]) -> list[GraphEdge]:
    """Link each job that declared a file in a folder with the job that next fired on the folder."""
    waiting: dict[str, list[JobRun]] = {}
    for job in jobs:
        if job.event.startswith("dir.") and job.parent is None:
            waiting.setdefault(job.subject, []).append(job)
    known = {job.id: job for job in jobs}
    first = min(known, default=0)
    edges: dict[tuple[int, int], None] = {}
    for path, number, _ in db.rows("result_outputs", first=first) if waiting else ():
        writer = known.get(number)
        if writer is None or writer.ended is None:
            continue
        for job in waiting.get(os.path.dirname(text.load_path(path)), ()):
            if job.id != number and writer.ended <= (job.started or job.created):
                edges[number, job.id] = None
                break
    return [GraphEdge(f"{before}", f"{after}") for before, after in edges]
