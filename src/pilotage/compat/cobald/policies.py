"""Policies by name: the AIMD policy with and without hints, COBalD's kinds, and its pipelines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pilotage.base import errors
from pilotage.compat.cobald import build, tardis
from pilotage.pool.decorator import Standardiser
from pilotage.pool.files import Aimd, Control, Even, Pool, Relative, SupplySteps
from pilotage.pool.pipeline import Pipeline, adopt
from pilotage.pool.simulate.run import Steer
from pilotage.pool.simulate.wheel import Lot, piped, wheel
from pilotage.pool.simulate.world import World

#: What is known by a name.
KINDS: Mapping[str, Control] = {
    "aimd": Aimd(), "blind": Aimd(hint=False), "linear": Even(), "relative": Relative(),
    "stepwise": SupplySteps(),
}  # fmt: skip
_PIPELINES = (".yaml", ".yml")


class Policy(NamedTuple):
    """Somebody to be tried."""

    name: str
    #: Takes the wheel of a world.
    begin: Callable[[World], Steer]


def control(name: str, one: Control, *, hints: str = "exact", pools: Mapping[str, Pool]) -> Policy:
    """Let `[control]` of a pool's file decide for each pool."""
    if isinstance(one, Aimd):
        heard = hints if one.hint else "none"
        return Policy(name, wheel(one.policy(hints=heard != "none"), hints=heard))
    return Policy(name, piped(lambda world, lot: _alone(world, lot, one, pools), _pending(pools)))


def pipeline(file: Path, pools: Mapping[str, Pool]) -> Policy:
    """Let a pipeline of COBalD decide; its pools are those of the world, by their names."""

    def begin(world: World, lot: Callable[[int], Lot]) -> list[Pipeline]:
        names = [pool.machine.name for pool in world.pools]

        def leaf(name: str = "", **_: Any) -> Lot:  # noqa: ANN401 - where its hub is, say
            if name not in names:
                message = f"there is no pool `{name}` in this world"
                raise errors.ConfigError(message, hint=f"there are {', '.join(names)}")
            return lot(names.index(name))

        return [_load(file, leaf)]

    return Policy(file.name, piped(begin, _pending(pools)))


def is_pipeline(word: str) -> bool:
    """Return whether a word names a file of COBalD's."""
    return word.endswith(_PIPELINES)


def _load(file: Path, leaf: Callable[..., Lot]) -> Pipeline:
    section: dict[str, Any] = {}

    def tree(configuration: str = "") -> Any:  # noqa: ANN401 - a composite
        if configuration:
            found = tardis.load(file.parent / configuration)
        else:
            found = tardis.read(section.get("tardis"), str(file))
        return tardis.tree(found, lambda name: adopt(leaf(name)))

    made = build.load_file(
        str(file), sections=("tardis",), prepare=section.update,
        makers={
            "!PilotagePool": leaf, "pilotage.pool.Pilots": leaf, "!TardisPoolFactory": tree,
            "tardis.resources.poolfactory.create_composite_pool": tree,
        },
    ).pipeline  # fmt: skip
    if not isinstance(made, Pipeline):
        message = f"{file}: there is no controller: nothing decides here"
        raise errors.ConfigError(message, hint="the first of `pipeline` is a controller")
    return made


def _alone(
    world: World, lot: Callable[[int], Lot], one: Control, pools: Mapping[str, Pool]
) -> list[Pipeline]:
    """Give each pool a controller of its own, within the bounds of its file or of its provider."""
    found = []
    for number, place in enumerate(world.place):
        name, top = world.pools[number].machine.name, float(world.quota[place])
        bounds = pools.get(name, Pool(site="", maximum=int(top)))
        decides = Pool(
            site="", maximum=1, interval=bounds.interval, control=one
        ).controller()  # fmt: skip
        if decides is None:
            raise errors.UsageError(f"{one} decides for all pools together")
        decorator = Standardiser(minimum=float(bounds.minimum), maximum=top)
        found.append(Pipeline(decides, decorator >> lot(number)))
    return found


def _pending(pools: Mapping[str, Pool]) -> float:
    """Return how many orders of a pool may wait at once; no limit in a made-up world."""
    return float(min((one.pending for one in pools.values()), default=math.inf))
