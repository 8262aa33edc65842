"""Jobs submitted by programs: checked, bounded, and deduplicated by key.

Requirements, rank and sites of every job are checked here before it is accepted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import msgspec

from pilotage.base import errors, text
from pilotage.job import records, template
from pilotage.job.model import App, Binding, Call, Command, JobRequest, JobSpec, NewJob, Recipe
from pilotage.match import expr
from pilotage.store import Db

#: What a node must have for jobs that bring an image.
_CONTAINER = "('podman' in sandboxes or 'apptainer' in sandboxes)"
#: What an offer must be like for jobs that use files of the project that they do not declare.
FOLDER = "sees_project"
#: What is true of an offer that runs nothing but applications that its administrator registered.
ONLY_APPLICATIONS = "only_applications"
#: What applications are called that take any program, and any function.
COMMANDS = "commands"
FUNCTIONS = "functions"
#: The applications of an offer; only sites with an agent have this.
APPLICATIONS = "applications"
_APPLICATION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@:-]{0,127}")
# Of sites with an agent the name is what messages allow.
_SITE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@:-]{0,127}")
# An image is an argument of programs: it begins with no dash, and holds nothing but a name.
_IMAGE = re.compile(r"[A-Za-z0-9_./][\w./:@+~-]{0,511}", re.ASCII)


def check_spec(spec: JobSpec) -> None:
    """Raise `BadRule`, with the key at fault, for what a matchmaker could not read."""
    for key, value in (("requirements", spec.requirements), ("rank", spec.rank)):
        try:
            check_expression(value)
        except errors.BadRule as error:
            error.at = key
            raise
    try:
        check_image(spec.image)
    except errors.BadRule as error:
        error.at = "image"
        raise

    try:
        check_site(spec)
    except errors.BadRule as error:
        error.at = "site"
        raise


def check_site(spec: JobSpec) -> None:
    """Raise `BadRule` for what no site could read."""
    if spec.site and not _SITE.fullmatch(spec.site):
        raise errors.BadRule(f"{spec.site!r} cannot be the name of a site")
    if spec.via and not spec.site:
        raise errors.BadRule("`via` says how a job runs at a site, and none is named")
    asked = spec.allocation
    if asked.nodes < 1 or asked.tasks < 1:
        raise errors.BadRule("a job has at least one node and one task")
    if asked.nodes * asked.tasks > 1 and not spec.site:
        raise errors.BadRule("only a batch system gives several nodes or tasks: name its `site`")
    words = (asked.queue, asked.account, asked.qos, asked.constraint, asked.reservation)
    for word in (*words, *asked.extra):
        check_word(word)
    if bad := [one for one in asked.extra if not one.startswith("-")]:
        raise errors.BadRule(f"{bad[0]!r} is no option", hint="write `--name=value`")


def check_word(text: str) -> None:
    """Raise `BadRule` for what a batch system could take for more than one word."""
    if any(one.isspace() or not one.isprintable() for one in text):
        raise errors.BadRule(f"{text!r} is not one word")


def check_expression(text: str) -> None:
    """Raise `BadRule` for what is no expression; no text at all asks for nothing."""
    if text:
        expr.parse(text)


def check_image(image: str) -> None:
    """Raise `BadRule` for what cannot name a container image; no text is no image."""
    scheme, _, rest = image.partition(":")
    # What comes from this machine is a file of the project, or an image that podman knows here.
    own = scheme in {"file", "local"}
    outside = scheme == "file" and (rest.startswith("/") or ".." in rest.split("/"))
    if image and (not _IMAGE.fullmatch(image) or outside or (own and not _IMAGE.fullmatch(rest))):
        hint = (
            "write `docker.io/library/python:3.12`, `docker://…`, the path of a file on the node, "
            "`file:` with the path of a file in the project, or `local:` with an image of yours"
        )
        raise errors.BadRule(f"{image!r} cannot name an image", hint=hint)


def application(recipe: Recipe) -> str:
    """Name the application that a site must have to run a recipe; empty if there is none."""
    match recipe:
        case App(app=name):
            return name
        case Command():
            return COMMANDS
        case Call():
            return FUNCTIONS
        case _:
            return ""


def _application(spec: JobSpec) -> str:
    """Write what a site must be like for what a job runs."""
    name = application(spec.recipe)
    if not _APPLICATION.fullmatch(name):
        return f"not {ONLY_APPLICATIONS}"
    return f'(not {ONLY_APPLICATIONS} or "{name}" in applications)'


def sites(spec: JobSpec) -> bool:
    """Return whether a job may go to a batch queue: it names a site, or needs applications."""
    if spec.site or not spec.requirements:
        return bool(spec.site)
    return APPLICATIONS in expr.parse(spec.requirements).names


def requirements(spec: JobSpec) -> str:
    """Write what an offer must be like: what the job asks for, its site, what its image needs."""
    clauses = [f'site == "{spec.site}"'] if spec.site else []
    if sites(spec):
        clauses.append(_application(spec))
    # A pilot has one node, and starts one task.
    if spec.via or spec.allocation.nodes * spec.allocation.tasks > 1:
        clauses.append("batch_queue")
    elif spec.image:
        clauses.append(_CONTAINER)
    if spec.needs_folder:
        clauses.append(FOLDER)
    if not clauses:
        return spec.requirements
    return " and ".join([*clauses, f"({spec.requirements})"] if spec.requirements else clauses)


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
    check_spec(spec)


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
