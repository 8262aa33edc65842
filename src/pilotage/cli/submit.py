"""`pilotage submit`: queue a command, a script or a job file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import msgspec
from cyclopts import Group, Parameter

from pilotage.base import errors, units
from pilotage.base.owner import me
from pilotage.cli import directives, formatting, job_selector
from pilotage.cli.answer import Answer, Shown, Style, Styled, line
from pilotage.cli.common import HERE, Common
from pilotage.hub.project import Project
from pilotage.job.model import (
    Command,
    Data,
    JobSpec,
    Limit,
    NewJob,
    Notebook,
    Python,
    Recipe,
    Script,
)
from pilotage.match import submission
from pilotage.match.prospect import Prospect
from pilotage.rule.schema import WAYS

_GROUP = Group("The job", sort_key=1)
_SHELL = (".sh", ".bash")


def _option(help_: str, **more: Any) -> Parameter:  # noqa: ANN401 - what cyclopts takes
    return Parameter(help=help_, group=_GROUP, **more)


@Parameter(name="*")
@dataclass(frozen=True)
class SubmitOptions:
    """Options of `submit`; None means not given."""

    name: Annotated[str | None, _option("Name; default: that of the program.")] = None
    cpus: Annotated[int | None, _option("Processor cores.")] = None
    memory: Annotated[str | None, _option("Memory, such as 8G; using more ends the job.")] = None
    time: Annotated[str | None, _option("Wall time, such as 1h30m or 01:30:00.")] = None
    gpus: Annotated[int | None, _option("GPUs.")] = None
    disk: Annotated[str | None, _option("Disk, such as 100G.")] = None
    requirements: Annotated[
        str | None, _option("Where it may run, such as \"site == 'kit' and memory >= 64G\".")
    ] = None
    rank: Annotated[str | None, _option('Where it prefers to run, such as "memory".')] = None
    image: Annotated[str | None, _option("Container image that it runs in.")] = None
    site: Annotated[str | None, _option("The site it runs at; `pilotage site ls` names them.")] = (
        None
    )
    via: Annotated[str | None, _option("How it runs there: sbatch (or batch), srun or direct.")] = (
        None
    )
    nodes: Annotated[int | None, _option("Nodes, for a batch job of its own.")] = None
    tasks: Annotated[int | None, _option("Tasks on each node.")] = None
    queue: Annotated[str | None, _option("Queue or partition of the batch system.")] = None
    account: Annotated[str | None, _option("Account at the batch system.")] = None
    data: Annotated[
        str | None, _option("How it reaches its data at the site: staged or mounted.")
    ] = None
    input: Annotated[
        tuple[str, ...], _option("A file or folder it reads, brought to the site; repeatable.")
    ] = ()
    env: Annotated[tuple[str, ...], _option("K=V, or K alone for its value here; repeatable.")] = ()
    cwd: Annotated[str | None, _option("Working directory; default: this one.")] = None
    priority: Annotated[int | None, _option("Higher starts first.")] = None
    limit: Annotated[str | None, _option("KEY[:N]: at most N jobs with KEY at once.")] = None
    retries: Annotated[int | None, _option("Retries if it fails.")] = None
    output: Annotated[tuple[str, ...], _option("A file that it must write; repeatable.")] = ()


NO_OPTIONS = SubmitOptions()


class Draft(msgspec.Struct, frozen=True):
    """A job definition, and notes about it."""

    spec: JobSpec
    tag: str = ""
    notes: tuple[str, ...] = ()


def build(words: tuple[str, ...], options: SubmitOptions) -> Draft:
    """Make the definition of a job; options beat directives, and these beat defaults."""
    file = Path(words[0])
    if len(words) == 1 and file.suffix == ".json" and file.is_file():
        return Draft(_fill(_read(file), options, cwd=""))
    if len(words) > 1 or file.suffix not in {*_SHELL, ".py", ".ipynb"}:
        name = os.path.basename(words[0]) or "job"
        argv = _argv(words, away=bool(options.site))
        return Draft(_fill(JobSpec(Command(argv), name), options, cwd=os.getcwd()))
    if not file.is_file():
        message = f"there is no file `{file}`"
        raise errors.NotFound(message, hint="a program is given with its arguments, a script alone")
    recipe, source = _script(file)
    found = directives.read(source, _DIRECTIVES)
    asked = _directed(options, found.values)
    notes = tuple(f"`#SBATCH {one}` is ignored" for one in found.ignored)
    spec = _fill(JobSpec(recipe, file.stem), asked, cwd=os.getcwd())
    return Draft(spec, found.values.get("tag", ""), notes)


def _argv(words: tuple[str, ...], *, away: bool) -> tuple[str, ...]:
    program = words[0]
    if "/" in program:
        program = os.path.abspath(program)
    elif not away and shutil.which(program) is None:
        message = f"there is no program `{program}`"
        raise errors.NotFound(message, hint="a command is no shell line: try `bash -c '…'`")
    return tuple(_plain(word) for word in (program, *words[1:]))


def _plain(word: str) -> str:
    """Keep braces as they are: what a person types here is no template."""
    return word.replace("{", "{{").replace("}", "}}")


def _script(file: Path) -> tuple[Recipe, str]:
    path = str(file.absolute())
    if file.suffix == ".ipynb":
        return Notebook(file=path), ""
    try:
        source = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        message = f"`{file}` is not UTF-8 text"
        raise errors.ConfigError(message, hint="a script is a text file") from error
    if file.suffix == ".py":
        return Python(file=path), source
    # As in batch systems, the submitted text runs, even if the file changes later.
    return Script(source=source), source


def _read(file: Path) -> JobSpec:
    try:
        return msgspec.json.decode(file.read_bytes(), type=JobSpec)
    except msgspec.MsgspecError as error:
        message = f"{file}: {error}"
        hint = (
            """a job is `{"name": "hi", "recipe": {"kind": "command", "argv": ["echo", "hi"]}}`"""
        )
        raise errors.ConfigError(message, hint=hint) from error


def _directed(options: SubmitOptions, values: dict[str, str]) -> SubmitOptions:
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name == "tag" or getattr(options, name) is not None:
            continue
        found[name] = _number(name, value) if _KINDS[name] == int | None else value
    return replace(options, **found)


#: The types of options.
_KINDS = get_type_hints(SubmitOptions)
#: Those that a script may name as directives.
_DIRECTIVES = (*(name for name, kind in _KINDS.items() if kind != tuple[str, ...]), "tag")


def _number(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        message = f"the directive `--{name}` is `{value}`, not a number"
        raise errors.UsageError(message, hint=f"write `#PILOTAGE --{name} 2`") from None


def _fill(spec: JobSpec, options: SubmitOptions, *, cwd: str) -> JobSpec:
    """Set what was given; an option sets the field of its name, but for those of another form."""
    given = {name: value for name, value in asdict(options).items() if value not in (None, ())}
    given |= {name: read(given[name]) for name, read in _READ.items() if name in given}
    if cwd or "cwd" in given:
        given["cwd"] = _plain(os.path.abspath(given.get("cwd") or cwd))
    if "retries" in given:
        attempts = 1 + max(0, given.pop("retries"))
        given["retry"] = msgspec.structs.replace(spec.retry, attempts=attempts)
    given["env"] = {**spec.env, **dict(_variable(one) for one in given.get("env", ()))}
    given["outputs"] = {**spec.outputs, **_outputs(given.pop("output", ()))}
    here = (_plain(os.path.abspath(one)) for one in given.pop("input", ()))
    given["inputs"] = (*spec.inputs, *here)
    return _checked(spec.changed(given))


def _one_of(name: str, known: Mapping[str, str]) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value not in known:
            raise errors.UsageError(f"`--{name} {value}`: one of {', '.join(known)}")
        return known[value]

    return read


def _at_least(name: str, least: int) -> Callable[[int], int]:
    def read(value: int) -> int:
        if value < least:
            message = f"a job cannot have {value} {name}"
            raise errors.UsageError(message, hint=f"`--{name}` is {least} or more")
        return value

    return read


def _checked(spec: JobSpec) -> JobSpec:
    try:
        submission.check_spec(spec)
    except errors.BadRule as error:
        raise errors.UsageError(f"`--{error.at}`: {error.message}", hint=error.hint) from None
    return spec


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name:
        message = f"`--env {text}` names no variable"
        raise errors.UsageError(message, hint="write `--env NAME=VALUE`")
    return name, _plain(value if equals else os.environ.get(name, ""))


def _outputs(paths: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in paths:
        name = os.path.basename(path) or path
        found[name if name not in found else path] = _plain(os.path.abspath(path))
    return found


def _limit(text: str) -> Limit:
    key, colon, most = text.rpartition(":")
    if not colon:
        return Limit(_plain(text))
    if not key or not most.isdigit() or int(most) < 1:
        message = f"`--limit {text}` is not a key and a number"
        raise errors.UsageError(message, hint="write `--limit camera` or `--limit camera:2`")
    return Limit(_plain(key), int(most))


#: Options whose values are written in another way than definitions have them.
_READ: Mapping[str, Callable[[Any], Any]] = {
    "cpus": _at_least("cpus", 1),
    "gpus": _at_least("gpus", 0),
    "memory": units.size,
    "disk": units.size,
    "time": units.seconds,
    "via": _one_of("via", WAYS),
    "data": _one_of("data", {one: one for one in get_args(Data)}),
    "limit": _limit,
}


def submit(
    words: Annotated[
        tuple[str, ...],
        Parameter(
            name="CMD", required=True,
            help="A program with its arguments, or a .sh, .py, .ipynb or .json file alone.",
        ),
    ],
    /,
    *,
    options: SubmitOptions = NO_OPTIONS,
    after: Annotated[
        tuple[str, ...], Parameter(help="Start when these jobs are done; repeatable.")
    ] = (),
    tag: Annotated[str, Parameter(help="A tag; `@TAG` selects all jobs that have it.")] = "",
    wait_: Annotated[
        bool, Parameter(name="--wait", help="Wait for its end and print its output.")
    ] = False,
    propagate: Annotated[
        bool, Parameter(help="With --wait: exit with the job's own status.")
    ] = False,
    dry_run: Annotated[
        bool,
        Parameter(name=("--dry-run", "-n"), help="Show what would be queued; queue nothing."),
    ] = False,
    at: Common = HERE,
) -> Answer:  # fmt: skip
    """Queue a command, a script or a job file; it is on disk when this returns."""
    draft = build(words, options)
    with at.open() as project:
        asked = submission.bound(draft.spec, str(project.root))
        said = _check(project, asked) if asked.site else []
        new = NewJob(
            asked,
            limit_key=submission.limit_key(asked),
            after=tuple(job_selector.numbers(project, after)),
            tag=tag or draft.tag,
        )
        if dry_run:
            return _plan(project, new, (*draft.notes, *said))
        number = project.submit(new)
        running = project.running()
        notes = [*draft.notes, *(said or _warnings(project, new))]
    if not running:
        notes.append(f"nothing runs this project now; job {number} is kept: start `pilotage up`")
    if wait_ or propagate:
        from pilotage.cli import wait

        return wait.for_one(number, at, propagate=propagate, notes=notes)
    return Answer(
        {"id": number, "name": new.spec.name, "running": running},
        (line("job ", Styled(str(number), "bold"), f"  {new.spec.name}"),),
        (number,),
        tuple(notes),
    )


def _check(project: Project, asked: JobSpec) -> list[str]:
    """Refuse what the site that is named will never take; return why it does not take it now."""
    from pilotage.status import sites

    try:
        return sites.check(
            project.db, project.root, project.settings, [asked], project.clock.now(),
            running=project.running(),
        )  # fmt: skip
    except errors.BadRule as error:
        raise errors.UsageError(f"`--{error.at}`: {error.message}", hint=error.hint) from None


def _prospect(project: Project, new: NewJob, *, room: bool) -> Prospect:
    from pilotage.status import offers

    now, running = project.clock.now(), project.running()
    scene = offers.read(project.db, project.settings, now=now, running=running, room=room)
    return scene.offers.prospect(new.spec, new.owner or me())


def _warnings(project: Project, new: NewJob) -> list[str]:
    """Return what keeps a job from starting although there is room."""
    from pilotage.match import queued

    found = _prospect(project, new, room=False)
    if not found.ever and (pool := _hoped(project, new)):
        return [f"it waits for a pilot of pool {pool}"]
    if found.never:
        advice = queued.advice(found.why.changes)
        words = f"it can never start on what is offered now: {queued.brief(found)}"
        return [words, *([f"hint: {advice}"] if advice else [])]
    return [] if found.ever else [f"it cannot start now: {queued.brief(found)}"]


def _hoped(project: Project, new: NewJob) -> str:
    from pilotage.status import explain

    now = project.clock.now()
    return explain.hoped(project.db, project.root, new.spec, new.owner or me(), now)


def _plan(project: Project, new: NewJob, notes: tuple[str, ...]) -> Answer:
    from pilotage.cli import job_details
    from pilotage.match import queued

    found = _prospect(project, new, room=True)
    shown: list[Shown] = [line(Styled("would queue", "bold"), f"  {new.spec.name}")]
    rows = {
        "runs": job_details.runs(new.spec.recipe),
        "in": new.spec.cwd or "(a directory of its own)",
        "needs": job_details.needs(new.spec),
        "where": job_details.where(new.spec),
        "after": ", ".join(f"job {one}" for one in new.after),
        "outputs": ", ".join(new.spec.outputs.values()),
        "limit": new.limit_key.replace(":", ", ") + " at once" if new.limit_key else "",
    }
    shown += [formatting.pair(name, value) for name, value in rows.items() if value]
    words = f"it fits now on {found.now} of {formatting.count(found.why.offers, 'offer')}"
    advice = queued.advice(found.why.changes) if found.never else ""
    style: Style = "green" if found.now else "red" if found.never else "yellow"
    text = words if found.now else queued.brief(found)
    shown.append(line(Styled(f"{'match':<10}  ", "dim"), Styled(text, style)))
    if advice:
        shown.append(formatting.pair("instead", advice))
    data = {"job": msgspec.to_builtins(new), "match": msgspec.to_builtins(found)}
    return Answer(
        data, tuple(shown), (), notes, status=errors.Denied.exit_status if found.never else 0
    )
