"""Jobs that programs submit, from wherever: checked, bounded, and the same key twice is one job."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pilotage import errors
from pilotage.job import records
from pilotage.job.model import Binding, JobSpec, NewJob
from pilotage.match import expr
from pilotage.store import Db

_FAR = 2**53


class Item(Protocol):
    """A job to queue, as it comes over a wire."""

    @property
    def spec(self) -> JobSpec:
        """What to run."""

    @property
    def binding(self) -> Binding:
        """With what."""

    @property
    def key(self) -> str:
        """What must be unique; empty means nothing."""

    @property
    def tag(self) -> str:
        """A label."""

    @property
    def after(self) -> tuple[int, ...]:
        """Jobs that must be done before it."""


def check(item: Item) -> None:
    """Refuse a job that the store could not keep or that could never make sense."""
    spec = item.spec
    needs, retry = spec.resources, spec.retry
    _within("cpus", needs.cpus, 1, 1_000_000)
    _within("gpus", needs.gpus, 0, 1_000_000)
    _within("memory", needs.memory, 1, _FAR)
    _within("disk", needs.disk, 0, _FAR)
    _within("time", needs.time, 0, _FAR)
    _within("priority", spec.priority, -_FAR, _FAR)
    _within("retry.attempts", retry.attempts, 1, 1000)
    _within("retry.delay", retry.delay, 0, _FAR)
    _within("retry.factor", retry.factor, 0, _FAR)
    _within("retry.longest", retry.longest, 0, _FAR)
    if spec.limit is not None:
        _within("limit.most", spec.limit.most, 1, _FAR)
    if not spec.name or len(spec.name) > 200 or not spec.name.isprintable():
        raise errors.UsageError("a job needs a name", hint="1 to 200 printable characters")
    for text in (spec.requirements, spec.rank):
        if text:
            expr.parse(text)


def _within(name: str, value: float | None, least: float, most: float) -> None:
    if value is not None and not least <= value <= most:
        raise errors.UsageError(
            f"`{name}` is {value}", hint=f"it may be from {least:g} to {most:g}"
        )


def add(db: Db, items: Iterable[Item], owner: str, now: float) -> list[int]:
    """Queue checked jobs in a transaction of the caller's; return their numbers in order."""
    return [_add(db, item, owner, now) for item in items]


def _add(db: Db, item: Item, owner: str, now: float) -> int:
    new = NewJob(
        item.spec, item.binding, key=item.key, limit_key=limit_key(item.spec), after=item.after,
        tag=item.tag, owner=owner,
    )  # fmt: skip
    job = records.add(db, new, now)
    if job is not None:
        return job
    known = db.row("api_job_by_key", key=item.key)
    if known is None or known[1] != owner:
        raise errors.Conflict(
            f"a job with the key {item.key!r} exists already", hint="choose another key"
        )
    return int(known[0])


def limit_key(spec: JobSpec) -> str:
    """Write the key by which places count: its text and how many may run."""
    if spec.limit is None:
        return ""
    return f"{spec.limit.key.replace('{{', '{').replace('}}', '}')}:{spec.limit.most}"
