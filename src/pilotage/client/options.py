"""Options of jobs: resources, time, priority and retries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pilotage.base import errors, units
from pilotage.client import file
from pilotage.job.model import App, Call, Command, JobSpec, Recipe, Retry, Via


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the jobs of a client are run."""

    #: Processor cores.
    cpus: int = 1
    #: Memory, in bytes or as text such as `"8G"`.
    memory: int | str | None = None
    #: GPUs.
    gpus: int = 0
    #: Disk, in bytes or as text.
    disk: int | str | None = None
    #: The longest time of a job, in seconds or as text such as `"2h"`.
    timeout: float | str | None = None
    #: How often a job is tried again after it failed.
    retries: int = 0
    #: Higher runs first.
    priority: int = 0
    #: Where it may run, as an expression.
    requirements: str = ""
    #: Where it would rather run, as an expression.
    rank: str = ""
    #: What it is called; empty means the name of the function or program.
    name: str = ""
    #: The container image that it wants to run in.
    image: str = ""
    #: The site that it runs at, and how: `"batch"`, `"srun"` or `"direct"`; empty means by a pilot.
    site: str = ""
    via: Via = ""
    #: The interpreter of functions, where they run; empty means that of Pilotage there.
    python: str = ""
    #: Environment variables.
    env: dict[str, str] = {}
    #: The directory to work in; empty means a folder of its own. `"."` is the project's folder.
    cwd: str = ""
    #: Files and folders that it reads, from the project's folder; `*` and `**` stand for many.
    inputs: tuple[str, ...] = ()
    #: Files and folders that it writes, by a name of your choice; a list names each by its path.
    outputs: dict[str, str] = {}
    #: The same for what it may write or not.
    optional_outputs: dict[str, str] = {}
    #: The registered application that runs; what is submitted is its arguments.
    app: str = ""
    #: Parameters of the application.
    params: dict[str, Any] = {}

    def spec(self, recipe: Recipe, name: str) -> JobSpec:
        """Make the definition of a job."""
        if isinstance(recipe, Call) and self.python:
            recipe = msgspec.structs.replace(recipe, python=self.python)
        declares = bool(self.inputs or self.outputs or self.optional_outputs)
        # A program that names files finds them by these names.
        cwd = "." if declares and isinstance(recipe, Command) else ""
        given = {one: getattr(self, one) for one in self.__struct_fields__ if one not in _OTHERS}
        given |= {one: read(given[one]) for one, read in _READ.items()}
        return JobSpec(recipe, self.name or name[:200]).changed(
            given
            | {
                "cwd": _literal(self.cwd) or cwd,
                "time": _seconds(self.timeout),
                "retry": Retry(attempts=self.retries + 1),
            }
        )


def change(options: Options, changes: dict[str, Any]) -> Options:
    """Return options with some of them changed."""
    known = {name: getattr(options, name) for name in Options.__struct_fields__}
    named = {name: _NAMES[name](changes[name]) for name in _NAMES if name in changes}
    try:
        return msgspec.convert(known | changes | named, Options)
    except msgspec.ValidationError as error:
        names = ", ".join(Options.__struct_fields__)
        raise errors.UsageError(f"options: {error}", hint=f"there are {names}") from None


def _inputs(paths: Any) -> tuple[str, ...]:  # noqa: ANN401 - whatever a caller gives
    if isinstance(paths, str | Mapping) or not isinstance(paths, Iterable):
        raise errors.UsageError("`inputs` is a list of files", hint='such as ["data/x.csv"]')
    return tuple(file.name(one) for one in paths)


def _outputs(paths: Any) -> dict[str, str]:  # noqa: ANN401 - whatever a caller gives
    if isinstance(paths, str) or not isinstance(paths, Iterable):
        hint = 'such as {"table": "out/x.csv"}'
        raise errors.UsageError("outputs are names and files", hint=hint)
    if isinstance(paths, Mapping):
        return {str(name): file.name(one) for name, one in paths.items()}
    return {one: one for one in map(file.name, paths)}


_NAMES: dict[str, Callable[[Any], Any]] = {
    "inputs": _inputs,
    "outputs": _outputs,
    "optional_outputs": _outputs,
}


def application(app: str, args: Sequence[str]) -> App:
    """Make the recipe of an application; its arguments are what they are."""
    return App(app, command(["", *args]).argv[1:])


def command(argv: Sequence[str]) -> Command:
    """Make the recipe of a program; its arguments are what they are, braces and all."""
    if not argv or not all(isinstance(word, str) for word in argv):
        raise errors.UsageError("a command is a list of text", hint='such as ["fit", "a.csv"]')
    return Command(tuple(_literal(word) for word in argv))


def _literals(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Keep braces as they are, wherever there is text."""
    if isinstance(value, str):
        return _literal(value)
    if isinstance(value, dict):
        return {name: _literals(one) for name, one in value.items()}
    return [_literals(one) for one in value] if isinstance(value, list) else value


def _literal(word: str) -> str:
    return word.replace("{", "{{").replace("}", "}}")


def _size(value: int | str | None) -> int | None:
    return units.size(value) if isinstance(value, str) else value


def _seconds(value: float | str | None) -> float | None:
    return units.seconds(value) if isinstance(value, str) else value


#: Options that are no fields of a definition, or have another name there.
_OTHERS = frozenset({"name", "timeout", "retries", "python", "app"})
#: Options whose values are written in another way than definitions have them.
_READ: Mapping[str, Callable[[Any], Any]] = {
    "memory": _size,
    "disk": _size,
    "env": _literals,
    "params": _literals,
    "inputs": lambda paths: tuple(_literal(one) for one in paths),
    "outputs": _literals,
    "optional_outputs": _literals,
}
