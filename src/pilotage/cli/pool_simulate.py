"""`pilotage pool simulate`: test policies on recorded jobs or built-in scenarios."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec
from cyclopts import Parameter

from pilotage.base import errors, units
from pilotage.cli import picture
from pilotage.cli.answer import Answer, Cell, Shown, Styled, Table, columns, line
from pilotage.cli.common import HERE, Common

if TYPE_CHECKING:
    from pilotage.compat.cobald.policies import Policy
    from pilotage.hub.project import Project
    from pilotage.pool.files import Pool
    from pilotage.pool.simulate.dice import Jobs
    from pilotage.pool.simulate.model import Figures, Scenario
    from pilotage.pool.simulate.run import Film


_RECORDED = "recorded"


class Case(NamedTuple):
    """A scenario to simulate."""

    where: Scenario
    jobs: Jobs | None = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SimulationOptions:
    """Options of the simulated world."""

    pool: Annotated[
        tuple[str, ...],
        Parameter(help="Simulate these pools, by name or by file; repeatable."),
    ] = ()
    delay: Annotated[
        str,
        Parameter(help="How long pilots of these pools wait, such as 30m; default: as recorded."),
    ] = ""
    since: Annotated[str, Parameter(help="How far back recorded jobs go, such as 7d.")] = "30d"
    seed: Annotated[int, Parameter(help="The first random seed.")] = 1
    runs: Annotated[int, Parameter(help="How many runs, each with the next seed.")] = 1


def _cases(
    word: str, pools: dict[str, Pool], world: SimulationOptions, at: Common
) -> tuple[list[Case], tuple[str, ...]]:
    """Return the scenarios to simulate, and notes about them."""
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


def _past(project: Project, world: SimulationOptions) -> tuple[list[Any], dict[str, list[float]]]:
    from pilotage.pool.simulate import trace

    since = project.clock.now() - units.seconds(world.since)
    return trace.jobs(project.db, since), trace.waits(project.db, since)


def _waits(at: Common, world: SimulationOptions) -> dict[str, list[float]]:
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


def _pool(word: str, at: Common) -> tuple[str, Pool]:
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


def _policy(word: str, pools: dict[str, Pool], hints: str, at: Common) -> Policy:
    """Find a policy by its name, that of a pool, or a file."""
    from pilotage.compat.cobald import policies as known
    from pilotage.pool.files import Outside

    if known.is_pipeline(word):
        return known.pipeline(Path(word), pools)
    if word in known.KINDS:
        return known.control(word, known.KINDS[word], hints=hints, pools=pools)
    try:
        name, found = _pool(word, at)
    except errors.NotFound as error:
        hint = f"policies are {', '.join(known.KINDS)}, a pool, a file of one, or a YAML"
        raise errors.NotFound(f"there is no policy `{word}`", hint=hint) from error
    if isinstance(found.control, Outside):
        message = f"{name} has an external controller"
        raise errors.UsageError(message, hint="`--policy FILE.yaml` tests its external controller")
    return known.control(name, found.control, hints=hints, pools=pools)


_HEADS = columns(
    "SCENARIO POLICY SEED> SCORE> USED> SERVED> WAIT> P95> ORDERS> PILOTS> UNUSED> COST>"
)
_MOST = 100
_DEFAULT = ("aimd", "blind", "linear", "relative")
#: Show progress after this many seconds.
_SOON_S = 2.0
_NOTE = (
    "score = (core-hours wasted + 0.25 × core-hours waited) / core-hours asked for; lower is better"
)


class Done(NamedTuple):
    """One run."""

    scenario: str
    policy: str
    seed: int
    figures: Figures
    film: Film


_WORLD = SimulationOptions()


def simulate(
    scenario: Annotated[
        str,
        Parameter(
            help="Name of a scenario, `all`, `recorded` for jobs of this project, or a JSON file."
        ),
    ] = "shifting",
    /,
    *,
    policy: Annotated[
        tuple[str, ...],
        Parameter(
            help="aimd, blind, linear, relative, stepwise, a pool, or a YAML of COBalD; repeatable."
        ),
    ] = (),
    hints: Annotated[
        Literal["exact", "noisy"], Parameter(help="How accurately the AIMD policy knows the queue.")
    ] = "exact",
    world: SimulationOptions = _WORLD,
    svg: Annotated[Path | None, Parameter(help="Draw the curves into this file.")] = None,
    at: Common = HERE,
) -> Answer:
    """Test policies on recorded jobs or a scenario, with the code that runs in production."""
    if not 1 <= world.runs <= _MOST:
        raise errors.UsageError(f"between 1 and {_MOST} runs, not {world.runs}")
    pools = {name: one for word in world.pool for name, one in (_pool(word, at),)}
    cases, notes = _cases(scenario, pools, world, at)
    # By default, the pools as they are come before all others.
    words = policy or (*world.pool[:1], *_DEFAULT)
    policies = [_policy(word, pools, hints, at) for word in words]
    done = list(_run(cases, policies, range(world.seed, world.seed + world.runs)))
    if svg is not None:
        notes += (_draw(svg, done),)
    shown = (Table(_HEADS, tuple(_row(one) for one in done)), *_curves(done))
    return Answer({"runs": [_data(one) for one in done]}, shown, (), (*notes, _NOTE))


# -- runs ----------------------------------------------------------------------------------------


def _run(cases: Sequence[Case], policies: Sequence[Policy], seeds: range) -> Iterator[Done]:
    from pilotage.pool.simulate.run import Film, run

    total, begun = len(cases) * len(policies) * len(seeds), time.monotonic()
    number = 0
    for case in cases:
        for seed in seeds:
            for policy in policies:
                if time.monotonic() - begun > _SOON_S:
                    _tell(f"{number} of {total} runs, now {policy.name} in {case.where.name}")
                film = Film()
                figures = run(case.where, seed, film.watch(policy.begin), jobs=case.jobs)
                yield Done(case.where.name, policy.name, seed, figures, film)
                number += 1
    _tell("")


def _tell(words: str) -> None:
    """Show progress on a terminal, on a temporary line."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{words}")
        sys.stderr.flush()


# -- output --------------------------------------------------------------------------------------


def _data(one: Done) -> dict[str, Any]:
    from pilotage.draw.curves import resample

    told: dict[str, Any] = msgspec.to_builtins(one.figures)
    film = one.film
    curves = {
        "supply": film.supply, "demand": film.demand, "used": film.used, "waiting": film.waiting
    }  # fmt: skip
    return {
        "scenario": one.scenario, "policy": one.policy, "seed": one.seed,
        "score": one.figures.score(), "served": one.figures.served, "cost": film.cost, **told,
        "curves": {key: resample(values, 240) for key, values in curves.items()},
    }  # fmt: skip


def _row(one: Done) -> tuple[Cell, ...]:
    found = one.figures
    return (
        one.scenario, one.policy, one.seed, f"{found.score():.3f}", f"{found.utilisation:.0%}",
        f"{found.served:.0%}", f"{found.wait * 60:.0f} min", f"{found.wait_p95 * 60:.0f} min",
        found.orders, found.drones, found.unused, f"{one.film.cost:.0f}",
    )  # fmt: skip


def _curves(done: Sequence[Done]) -> Iterator[Shown]:
    """Draw the first run of each policy in the first world."""
    from pilotage.cli.curve import curves

    first = _first(done)
    top = max(max(film.supply, default=0.0) for film in first.values())
    for name, film in first.items():
        yield ""
        yield line(Styled(f"{name}, {len(film.supply) // 60} hours", "bold"))
        yield from curves(_series(film), top)


def _first(done: Sequence[Done]) -> dict[str, Film]:
    """Choose the runs that are drawn: of each policy the first, in the first world."""
    one = done[0]
    return {
        each.policy: each.film
        for each in done
        if (each.scenario, each.seed) == (one.scenario, one.seed)
    }


def _draw(file: Path, done: Sequence[Done]) -> str:
    """Draw what each policy had, wanted and used."""
    from pilotage.draw import curves
    from pilotage.draw.curves import Curve

    drawn = curves.as_svg(
        f"Pools in {done[0].scenario}",
        (
            Curve("cores", "#2a62a8", filled=True), Curve("demand", "#c9731f", "6 3"),
            Curve("in use", "#3d8b59"),
        ),
        {name: _series(film) for name, film in _first(done).items()},
        step=60.0,
    )  # fmt: skip
    picture.save(file, drawn.svg)
    return f"wrote {file}"


def _series(film: Film) -> dict[str, list[float]]:
    return {"cores": film.supply, "demand": film.demand, "in use": film.used}
