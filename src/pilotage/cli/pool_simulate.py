"""`pilotage pool simulate`: try a policy on a made-up world, in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from cyclopts import Parameter

from pilotage import errors
from pilotage.cli.answer import Answer, Cell, Table, columns
from pilotage.cli.common import HERE, Common

if TYPE_CHECKING:
    from pilotage.pool.files import Aimd
    from pilotage.pool.simulate.model import Figures, Scenario

_HEADS = columns("SCENARIO SEED> SCORE> USED> SERVED> WAIT> ORDERS> CANCELLED> PILOTS> UNUSED>")
_MOST = 100
_NOTE = (
    "the score is what was wasted and a quarter of what was waited, in core-hours, of all that was "
    "asked for: less is better"
)


def simulate(
    scenario: Annotated[
        str, Parameter(help="Its name, `all`, or a JSON file that describes one.")
    ] = "shifting",
    /,
    *,
    pool: Annotated[
        str, Parameter(help="Decide as this pool does, or as a file of one says.")
    ] = "",
    hints: Annotated[
        Literal["exact", "noisy", "none"], Parameter(help="What is heard of the queue.")
    ] = "exact",
    seed: Annotated[int, Parameter(help="The first seed of the dice.")] = 1,
    runs: Annotated[int, Parameter(help="How many runs, each with the next seed.")] = 1,
    at: Common = HERE,
) -> Answer:
    """Let our law steer pools of a made-up world, with the code that runs in production."""
    from pilotage.pool.simulate.run import run
    from pilotage.pool.simulate.wheel import wheel

    if not 1 <= runs <= _MOST:
        raise errors.UsageError(f"between 1 and {_MOST} runs, not {runs}")
    law = _control(pool, at).law(hints=hints != "none")
    found = [
        (world.name, number, run(world, number, wheel(law, hints=hints)))
        for world in _scenarios(scenario)
        for number in range(seed, seed + runs)
    ]
    data = [_data(*one) for one in found]
    shown = Table(_HEADS, tuple(_row(*one) for one in found))
    return Answer({"runs": data}, (shown,), (), (_NOTE,))


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
        raise errors.NotFound(message, hint=f"scenarios are {known}, or a JSON file") from None
    except (msgspec.DecodeError, OSError) as error:
        raise errors.UsageError(f"{word}: {error}") from error


def _control(pool: str, at: Common) -> Aimd:
    """Find what decides: by default our law as it is, else as a pool has it."""
    from pilotage.pool import files

    if not pool:
        return files.Aimd()
    if pool.endswith(".toml"):
        file = Path(pool)
        found = files.parse(file.read_text(encoding="utf-8"), file.stem, file)
    else:
        with at.open() as project:
            found = files.read(project.root, pool)
    if not isinstance(found.control, files.Aimd):
        message = f"{pool} is under a controller of COBalD's, which sees one pool at a time"
        raise errors.UsageError(message, hint='only `kind = "aimd"` is simulated by this command')
    return found.control


def _data(name: str, seed: int, one: Figures) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(one)
    return {"scenario": name, "seed": seed, "score": one.score(), "served": one.served} | told


def _row(name: str, seed: int, one: Figures) -> tuple[Cell, ...]:
    return (
        name, seed, f"{one.score():.3f}", f"{one.utilisation:.0%}", f"{one.served:.0%}",
        f"{one.wait * 60:.0f} min", one.orders, one.cancelled, one.drones, one.unused,
    )  # fmt: skip
