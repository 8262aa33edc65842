"""What `pilotage pool simulate` tries: which worlds, with which jobs, and which policies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from cyclopts import Parameter

from pilotage.base import errors, units
from pilotage.cli.common import Common

if TYPE_CHECKING:
    from pilotage.compat.cobald.policies import Policy
    from pilotage.hub.project import Project
    from pilotage.pool.files import Pool
    from pilotage.pool.simulate.dice import Jobs
    from pilotage.pool.simulate.model import Scenario

_RECORDED = "recorded"


class Case(NamedTuple):
    """A world to try policies in."""

    where: Scenario
    jobs: Jobs | None = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class World:
    """Where policies are tried."""

    pool: Annotated[
        tuple[str, ...],
        Parameter(help="Steer these pools, by name or as a file of one has it; repeatable."),
    ] = ()
    delay: Annotated[
        str, Parameter(help="How long pilots of these pools wait, such as 30m; else as they did.")
    ] = ""
    since: Annotated[str, Parameter(help="How far back recorded jobs go, such as 7d.")] = "30d"
    seed: Annotated[int, Parameter(help="The first seed of the dice.")] = 1
    runs: Annotated[int, Parameter(help="How many runs, each with the next seed.")] = 1


def cases(
    word: str, pools: dict[str, Pool], world: World, at: Common
) -> tuple[list[Case], tuple[str, ...]]:
    """Find the worlds that are meant, and what is to be said of them."""
    from pilotage.pool.simulate import scenario

    if word != _RECORDED:
        found = _scenarios(word)
        if pools:
            waits = _waits(at, world)
            delay = units.seconds(world.delay) if world.delay else None
            found = [
                msgspec.structs.replace(
                    scenario.of_pools(pools, waits, one.kinds, delay=delay, hours=one.hours),
                    name=one.name, load=one.load, warm=one.warm,
                )
                for one in found
            ]  # fmt: skip
        return [Case(one) for one in found], ()
    with at.open() as project:
        jobs, waits = _past(project, world)
    if not jobs:
        message = f"no job of this project has ended in the last {world.since}"
        raise errors.UsageError(message, hint="`--since 90d`, or the name of a scenario")
    delay = units.seconds(world.delay) if world.delay else None
    where = scenario.of_pools(pools, waits, (), delay=delay) if pools else _scenarios("shifting")[0]
    made, trace, unfit = scenario.replay(jobs, where)
    if unfit == len(jobs):
        raise errors.UsageError("no recorded job fits any pilot", hint="larger pilots would do")
    notes = (f"{unfit} of {len(jobs)} recorded jobs fit no pilot and are left out",)
    made = msgspec.structs.replace(made, name=_RECORDED)
    return [Case(made, trace.steps)], notes if unfit else ()


def _past(project: Project, world: World) -> tuple[list[Any], dict[str, list[float]]]:
    from pilotage.pool.simulate import trace as history

    since = project.clock.now() - units.seconds(world.since)
    return history.jobs(project.db, since), history.waits(project.db, since)


def _waits(at: Common, world: World) -> dict[str, list[float]]:
    """Read how long pilots waited, where there is a project."""
    try:
        with at.open() as project:
            return _past(project, world)[1]
    except errors.NoProject:
        return {}


def _scenarios(word: str) -> list[Scenario]:
    from pilotage.pool.simulate.model import Scenario
    from pilotage.pool.simulate.scenario import SCENARIOS

    if word == "all":
        return list(SCENARIOS.values())
    if word in SCENARIOS:
        return [SCENARIOS[word]]
    known = ", ".join(SCENARIOS)
    try:
        return [msgspec.json.decode(Path(word).read_bytes(), type=Scenario)]
    except FileNotFoundError:
        message = f"there is no scenario `{word}`"
        hint = f"scenarios are {known}, `{_RECORDED}`, or a JSON file"
        raise errors.NotFound(message, hint=hint) from None
    except (msgspec.DecodeError, OSError) as error:
        raise errors.UsageError(f"{word}: {error}") from error


def pool(word: str, at: Common) -> tuple[str, Pool]:
    """Find a pool of the project, or in a file that is not in force."""
    from pilotage.pool import files

    if not word.endswith(".toml"):
        with at.open() as project:
            return word, files.read(project.root, word)
    file = Path(word)
    try:
        return file.stem, files.parse(file.read_text(encoding="utf-8"), file.stem, file)
    except (OSError, UnicodeDecodeError) as error:
        raise errors.UsageError(f"{word}: {error}") from error


def policy(word: str, pools: dict[str, Pool], hints: str, at: Common) -> Policy:
    """Find a policy by its name, that of a pool, or a file."""
    from pilotage.compat.cobald import policies as known
    from pilotage.pool.files import Outside

    if known.is_pipeline(word):
        return known.pipeline(Path(word), pools)
    if word in known.KINDS:
        return known.control(word, known.KINDS[word], hints=hints, pools=pools)
    try:
        name, found = pool(word, at)
    except errors.NotFound as error:
        hint = f"policies are {', '.join(known.KINDS)}, a pool, a file of one, or a YAML"
        raise errors.NotFound(f"there is no policy `{word}`", hint=hint) from error
    if isinstance(found.control, Outside):
        message = f"{name} is steered from outside"
        raise errors.UsageError(message, hint="`--policy FILE.yaml` tries what steers it")
    return known.control(name, found.control, hints=hints, pools=pools)
