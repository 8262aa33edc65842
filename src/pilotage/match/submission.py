"""Jobs submitted by programs: checked, bounded, and deduplicated by key."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from pilotage.base import errors, text
from pilotage.job import records, template
from pilotage.job.model import Binding, JobRequest, JobSpec, NewJob
from pilotage.match import wish
from pilotage.store import Db

_FAR = 2**53
#: Characters of a key and of a label.
_LONGEST = 500
_EMPTY = Binding()
_NOTHING = text.dump(_EMPTY)


def check(item: JobRequest) -> None:
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
    for name, value in (("key", item.key), ("tag", item.tag)):
        if len(value) > _LONGEST or not value.isprintable():
            hint = f"at most {_LONGEST} printable characters"
            raise errors.UsageError(f"`{name}` cannot be like this", hint=hint)
    if not all(0 < one < _FAR for one in item.after):
        raise errors.UsageError("`after` holds numbers of jobs", hint="see `pilotage job ls`")
    if item.binding.handoff is not None:
        message = "`handoff` is for steps of workflows"
        raise errors.UsageError(message, hint="submit a workflow: `pilotage flow submit`")
    wish.check(spec)


def _within(name: str, value: float | None, least: float, most: float) -> None:
    if value is not None and not least <= value <= most:
        raise errors.UsageError(
            f"`{name}` is {value}", hint=f"it may be from {least:g} to {most:g}"
        )


def bound(spec: JobSpec, root: str) -> JobSpec:
    """Keep a job where the project's folder is if it runs in that and declares no data."""
    if not (root and spec.cwd) or spec.base or spec.site:
        # What comes from another project has its folder elsewhere.
        return spec
    if spec.inputs or spec.outputs or spec.optional_outputs:
        return spec
    try:
        pieces = template.pieces(spec.cwd)
    except errors.BadRule:
        # It cannot start, and says so then.
        return spec
    # Other keywords than `{base}` name files of the project, too.
    cwd = "".join(literal + (root if name == "base" else name) for literal, name in pieces)
    inside = f"{os.path.normpath(os.path.join(root, cwd))}/".startswith(f"{root}/")
    return msgspec.structs.replace(spec, needs_folder=True) if inside else spec


def add(db: Db, items: Sequence[JobRequest], owner: str, now: float, root: str = "") -> list[int]:
    """Queue checked jobs in a transaction of the caller's; return their numbers in order.

    Those that use the folder `root` without saying what of it run where it is.
    """
    numbers: dict[int, int] = {}
    plain = [index for index, item in enumerate(items) if not item.after]
    if plain:
        made = _add_many(db, [items[index] for index in plain], owner, now, root)
        numbers.update(zip(plain, made, strict=True))
    for index, item in enumerate(items):
        if item.after:
            new = NewJob(
                bound(item.spec, root), item.binding, key=item.key, limit_key=limit_key(item.spec),
                after=item.after, tag=item.tag, owner=owner,
            )  # fmt: skip
            job = records.add(db, new, now)
            numbers[index] = _known(db, item.key, owner) if job is None else job
    return [numbers[index] for index in range(len(items))]


def _add_many(db: Db, items: list[JobRequest], owner: str, now: float, root: str) -> list[int]:
    """Queue jobs that wait for no other, by one statement."""
    specs: dict[str, int] = {}
    rows = []
    for item in items:
        # Jobs of one request mostly have the same definition.
        body = text.dump(item.spec)
        spec = specs.get(body)
        if spec is None:
            spec = specs[body] = records.intern(db, bound(item.spec, root))
        binding = _NOTHING if item.binding == _EMPTY else text.dump(item.binding)
        rows.append((item.key or None, spec, binding, limit_key(item.spec), item.tag))
    last = int(db.value("job_last"))
    made = db.rows("submit_jobs", rows=text.dump(rows), now=now, owner=owner)
    db.run("journal_new_jobs", after=last)
    keyed = {key: int(job) for job, key in made if key is not None}
    others = iter(sorted(int(job) for job, key in made if key is None))
    return [
        (keyed.get(item.key) or _known(db, item.key, owner)) if item.key else next(others)
        for item in items
    ]


def _known(db: Db, key: str, owner: str) -> int:
    """Find the job that has a key already: the one that was meant, if it is the same owner's."""
    known = db.row("api_job_by_key", key=key)
    if known is None or known[1] != owner:
        raise errors.Conflict(
            f"a job with the key {key!r} exists already", hint="choose another key"
        )
    return int(known[0])


def limit_key(spec: JobSpec) -> str:
    """Write the key by which places count: its text and how many may run."""
    if spec.limit is None:
        return ""
    return f"{spec.limit.key.replace('{{', '{').replace('}}', '}')}:{spec.limit.most}"
