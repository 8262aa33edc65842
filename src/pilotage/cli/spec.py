"""From the words of `submit` to the definition of a job."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Group, Parameter

from pilotage.base import errors, units
from pilotage.cli import directives
from pilotage.job.model import (
    Command,
    JobSpec,
    Limit,
    Notebook,
    Python,
    Recipe,
    Resources,
    Retry,
    Script,
)
from pilotage.match import wish
from pilotage.rule.schema import WAYS

_GROUP = Group("The job", sort_key=1)
_SHELL = (".sh", ".bash")


def _option(help_: str, **more: Any) -> Parameter:  # noqa: ANN401 - what cyclopts takes
    return Parameter(help=help_, group=_GROUP, **more)


@Parameter(name="*")
@dataclass(frozen=True)
class Wishes:
    """What a person asks for on the command line; None is not asked for."""

    name: Annotated[str | None, _option("Name; else that of the program.")] = None
    cpus: Annotated[int | None, _option("Processor cores.")] = None
    memory: Annotated[str | None, _option("Memory, such as 8G; using more ends the job.")] = None
    time: Annotated[str | None, _option("Wall time, such as 1h30m or 01:30:00.")] = None
    gpus: Annotated[int | None, _option("GPUs.")] = None
    disk: Annotated[str | None, _option("Disk, such as 100G.")] = None
    requirements: Annotated[
        str | None, _option("Where it may run, such as \"site == 'kit' and memory >= 64G\".")
    ] = None
    rank: Annotated[str | None, _option('Where it would rather run, such as "memory".')] = None
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
    cwd: Annotated[str | None, _option("Working directory; else this one.")] = None
    priority: Annotated[int | None, _option("Higher starts first.")] = None
    limit: Annotated[str | None, _option("KEY[:N]: at most N jobs with KEY at once.")] = None
    retries: Annotated[int | None, _option("Try again so often if it fails.")] = None
    output: Annotated[
        tuple[str, ...], _option("A file that must be there after it; repeatable.")
    ] = ()


NONE = Wishes()


class Draft(msgspec.Struct, frozen=True):
    """A definition, and what there is to say of it."""

    spec: JobSpec
    tag: str = ""
    notes: tuple[str, ...] = ()


def build(words: tuple[str, ...], wishes: Wishes) -> Draft:
    """Make the definition of a job; options beat directives, and these beat defaults."""
    file = Path(words[0])
    if len(words) == 1 and file.suffix == ".json" and file.is_file():
        return Draft(_fill(_read(file), wishes, cwd=""))
    if len(words) > 1 or file.suffix not in {*_SHELL, ".py", ".ipynb"}:
        name = os.path.basename(words[0]) or "job"
        argv = _argv(words, away=bool(wishes.site))
        return Draft(_fill(JobSpec(Command(argv), name), wishes, cwd=os.getcwd()))
    if not file.is_file():
        message = f"there is no file `{file}`"
        raise errors.NotFound(message, hint="a program is given with its arguments, a script alone")
    recipe, source = _script(file)
    found = directives.read(source)
    asked = _directed(wishes, found.values)
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
    # As batch systems do: what is submitted is what runs, whatever becomes of the file meanwhile.
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


def _directed(wishes: Wishes, values: dict[str, str]) -> Wishes:
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name == "tag" or getattr(wishes, name) is not None:
            continue
        found[name] = _number(name, value) if name in _NUMBERS else value
    return replace(wishes, **found)


_NUMBERS = frozenset({"cpus", "gpus", "nodes", "priority", "retries", "tasks"})


def _number(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        message = f"the directive `--{name}` is `{value}`, not a number"
        raise errors.UsageError(message, hint=f"write `#PILOTAGE --{name} 2`") from None


def _fill(spec: JobSpec, wishes: Wishes, *, cwd: str) -> JobSpec:
    changes: dict[str, Any] = {
        "resources": _resources(spec.resources, wishes),
        "env": {**spec.env, **dict(_variable(one) for one in wishes.env)},
        "outputs": {**spec.outputs, **_outputs(wishes.output)},
    }
    if cwd or wishes.cwd is not None:
        changes["cwd"] = _plain(os.path.abspath(wishes.cwd or cwd))
    if wishes.name is not None:
        changes["name"] = wishes.name
    if wishes.priority is not None:
        changes["priority"] = wishes.priority
    if wishes.retries is not None:
        retry: Retry = msgspec.structs.replace(spec.retry, attempts=1 + max(0, wishes.retries))
        changes["retry"] = retry
    if wishes.limit is not None:
        changes["limit"] = _limit(wishes.limit)
    for name in ("requirements", "rank", "image", "site", "data"):
        if (asked := getattr(wishes, name)) is not None:
            changes[name] = asked
    changes |= _at_site(spec, wishes)
    return _checked(msgspec.structs.replace(spec, **changes))


def _at_site(spec: JobSpec, wishes: Wishes) -> dict[str, Any]:
    """Read what only means something at a site."""
    changes: dict[str, Any] = {}
    if wishes.via is not None:
        if wishes.via not in WAYS:
            raise errors.UsageError(f"`--via {wishes.via}`: one of {', '.join(WAYS)}")
        changes["via"] = WAYS[wishes.via]
    given = {name: getattr(wishes, name) for name in ("nodes", "tasks", "queue", "account")}
    if asked_for := {name: value for name, value in given.items() if value is not None}:
        changes["allocation"] = msgspec.structs.replace(spec.allocation, **asked_for)
    if wishes.data not in {None, "staged", "mounted"}:
        raise errors.UsageError(f"`--data {wishes.data}`: staged or mounted")
    if wishes.input:
        here = (_plain(os.path.abspath(one)) for one in wishes.input)
        changes["inputs"] = (*spec.inputs, *here)
    return changes


def _checked(spec: JobSpec) -> JobSpec:
    try:
        wish.check(spec)
    except errors.BadRule as error:
        raise errors.UsageError(f"`--{error.at}`: {error.message}", hint=error.hint) from None
    return spec


def _resources(needs: Resources, wishes: Wishes) -> Resources:
    changes: dict[str, Any] = {}
    for name, value, least in (("cpus", wishes.cpus, 1), ("gpus", wishes.gpus, 0)):
        if value is not None and value < least:
            message = f"a job cannot have {value} {name}"
            raise errors.UsageError(message, hint=f"`--{name}` is {least} or more")
        if value is not None:
            changes[name] = value
    if wishes.memory is not None:
        changes["memory"] = units.size(wishes.memory)
    if wishes.disk is not None:
        changes["disk"] = units.size(wishes.disk)
    if wishes.time is not None:
        changes["time"] = units.seconds(wishes.time)
    return msgspec.structs.replace(needs, **changes)


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
