"""`pilotage pool simulate`: try policies on recorded jobs or on a made-up world, in seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec
from cyclopts import Parameter

from pilotage.base import errors
from pilotage.cli import picture, pool_tried
from pilotage.cli.answer import Answer, Cell, Shown, Styled, Table, columns, line
from pilotage.cli.common import HERE, Common

if TYPE_CHECKING:
    from pilotage.compat.cobald.policies import Policy
    from pilotage.pool.simulate.model import Figures
    from pilotage.pool.simulate.run import Film

_HEADS = columns(
    "SCENARIO POLICY SEED> SCORE> USED> SERVED> WAIT> P95> ORDERS> PILOTS> UNUSED> COST>"
)
_MOST = 100
_DEFAULT = ("aimd", "blind", "linear", "relative")
#: Progress is told to whoever waits longer than this, in seconds.
_SOON_S = 2.0
_NOTE = (
    "the score is what was wasted and a quarter of what was waited, in core-hours, of all that was "
    "asked for: less is better"
)


class Done(NamedTuple):
    """One run."""

    scenario: str
    policy: str
    seed: int
    figures: Figures
    film: Film


_WORLD = pool_tried.World()


def simulate(
    scenario: Annotated[
        str,
        Parameter(help="Its name, `all`, `recorded` for jobs of this project, or a JSON file."),
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
        Literal["exact", "noisy"], Parameter(help="How well our law hears of the queue.")
    ] = "exact",
    world: pool_tried.World = _WORLD,
    svg: Annotated[Path | None, Parameter(help="Draw the curves into this file.")] = None,
    at: Common = HERE,
) -> Answer:
    """Try policies on recorded jobs or a made-up world, with the code that runs in production."""
    if not 1 <= world.runs <= _MOST:
        raise errors.UsageError(f"between 1 and {_MOST} runs, not {world.runs}")
    pools = {name: one for word in world.pool for name, one in (pool_tried.pool(word, at),)}
    cases, notes = pool_tried.cases(scenario, pools, world, at)
    # By default, the pools as they are come before all others.
    words = policy or (*world.pool[:1], *_DEFAULT)
    policies = [pool_tried.policy(word, pools, hints, at) for word in words]
    done = list(_run(cases, policies, range(world.seed, world.seed + world.runs)))
    if svg is not None:
        notes += (_draw(svg, done),)
    shown = (Table(_HEADS, tuple(_row(one) for one in done)), *_curves(done))
    return Answer({"runs": [_data(one) for one in done]}, shown, (), (*notes, _NOTE))


# -- runs ----------------------------------------------------------------------------------------


def _run(
    cases: Sequence[pool_tried.Case], policies: Sequence[Policy], seeds: range
) -> Iterator[Done]:
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
    """Say on a terminal how far it is, on a line that goes."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{words}")
        sys.stderr.flush()


# -- what is told --------------------------------------------------------------------------------


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
