"""What a client asks for beside the work itself: room, time, order, tries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pilotage import errors, units
from pilotage.job.model import Call, Command, JobSpec, Recipe, Resources, Retry, Via


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
    #: The directory to work in.
    cwd: str = ""

    def spec(self, recipe: Recipe, name: str) -> JobSpec:
        """Make the definition of a job."""
        if isinstance(recipe, Call) and self.python:
            recipe = msgspec.structs.replace(recipe, python=self.python)
        time = self.timeout
        return JobSpec(
            recipe,
            self.name or name[:200],
            env={key: _literal(value) for key, value in self.env.items()},
            cwd=_literal(self.cwd),
            resources=Resources(
                cpus=self.cpus,
                memory=_size(self.memory),
                gpus=self.gpus,
                disk=_size(self.disk),
                time=units.seconds(time) if isinstance(time, str) else time,
            ),
            retry=Retry(attempts=self.retries + 1),
            requirements=self.requirements,
            rank=self.rank,
            image=self.image,
            site=self.site,
            via=self.via,
            priority=self.priority,
        )


def change(options: Options, changes: dict[str, Any]) -> Options:
    """Return options with some of them changed."""
    known = {name: getattr(options, name) for name in Options.__struct_fields__}
    try:
        return msgspec.convert(known | changes, Options)
    except msgspec.ValidationError as error:
        names = ", ".join(Options.__struct_fields__)
        raise errors.UsageError(f"options: {error}", hint=f"there are {names}") from None


def command(argv: Sequence[str]) -> Command:
    """Make the recipe of a program; its arguments are what they are, braces and all."""
    if not argv or not all(isinstance(word, str) for word in argv):
        raise errors.UsageError("a command is a list of text", hint='such as ["fit", "a.csv"]')
    return Command(tuple(_literal(word) for word in argv))


def _literal(word: str) -> str:
    return word.replace("{", "{{").replace("}", "}}")


def _size(value: int | str | None) -> int | None:
    return units.size(value) if isinstance(value, str) else value
