"""Record what COBalD does, for the tests of pools.

    python -m venv /tmp/cobald && /tmp/cobald/bin/pip install cobald==0.14.0
    /tmp/cobald/bin/python tests/replay/cobald/record.py > tests/replay/cobald/recorded.json

Nothing of COBalD is copied here: it is imported, driven with made-up readings, and what it asks for
is written down.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

STEPS = 40
dice = random.Random(20)


class Plain:
    """A pool that is whatever it was told to be."""

    def __init__(self, demand: float = 0.0, supply: float = 1.0) -> None:
        self.demand, self.supply = float(demand), float(supply)
        self.utilisation = self.allocation = 1.0

    def tell(self, supply: float, utilisation: float, allocation: float) -> None:
        self.supply, self.utilisation, self.allocation = supply, utilisation, allocation


def told() -> tuple[float, float, float]:
    one, other = round(dice.random(), 3), round(dice.random(), 3)
    return round(dice.uniform(1, 200), 1), min(one, other), max(one, other)


def band() -> dict[str, float]:
    low = round(dice.uniform(0.1, 0.6), 2)
    return {"low_utilisation": low, "high_allocation": round(dice.uniform(low, 0.9), 2)}


def drive(case: dict[str, Any], pool: Any, regulate: Any, seen: Any) -> dict[str, Any]:
    """Tell, let it regulate, write down."""
    steps = []
    for _ in range(STEPS):
        now, elapsed = told(), round(dice.choice([0.5, 1, 1, 5, 60]), 1)
        pool.tell(*now)
        regulate(elapsed)
        steps.append([*now, elapsed, pool.demand, seen()])
        # Ours never goes below nothing; from there on both go the same way again.
        pool.demand = max(0.0, pool.demand)
    return {**case, "steps": steps}


def controllers() -> list[dict[str, Any]]:
    from cobald.controller.linear import LinearController
    from cobald.controller.relative_supply import RelativeSupplyController
    from cobald.controller.stepwise import RangeSelector
    from cobald.controller.switch import DemandSwitch

    found = []
    for _ in range(5):
        keys = {**band(), "rate": round(dice.uniform(0.1, 5), 2)}
        pool = Plain(round(dice.uniform(0, 400)))
        case = {"kind": "linear", "keys": keys, "demand": pool.demand}
        made = LinearController(pool, **keys)
        found.append(drive(case, pool, made.regulate, lambda pool=pool: pool.demand))
        keys = {**band(), "low_scale": 0.8, "high_scale": round(dice.uniform(1.05, 2), 2)}
        pool = Plain(10)
        case = {"kind": "relative", "keys": keys, "demand": pool.demand}
        scaled = RelativeSupplyController(pool, **keys)
        found.append(drive(case, pool, scaled.regulate, lambda pool=pool: pool.demand))
    pool = Plain(10)
    rules = RangeSelector(lambda _, __: 10.0, (100.0, scale), (20.0, count))

    def step(elapsed: float) -> None:
        wanted = rules.get_rule(pool.supply)(pool, elapsed)
        if wanted is not None:
            pool.demand = wanted

    found.append(drive({"kind": "stepwise", "demand": 10.0}, pool, step, lambda: pool.demand))
    for _ in range(3):
        first = {**band(), "rate": 2.0}
        second = {**band(), "low_scale": 0.8, "high_scale": 1.2}
        both = Plain(50)
        case = {"kind": "switch", "first": first, "second": second, "demand": 50.0}
        low = LinearController(both, **first)
        switch = DemandSwitch(both, low, 60.0, RelativeSupplyController(both, **second))
        found.append(drive(case, both, switch.regulate, lambda both=both: both.demand))
    return found


def count(pool: Any, elapsed: float) -> float | None:
    """Step up or down; the tests have the same."""
    if pool.utilisation < 0.3:
        return float(pool.demand - elapsed)
    return float(pool.demand + elapsed) if pool.allocation > 0.7 else None


def scale(pool: Any, _: float) -> float | None:
    """Scale up or down; the tests have the same."""
    return float(pool.supply * (1.2 if pool.allocation > 0.75 else 0.9))


def shapes() -> list[dict[str, Any]]:
    from cobald.controller.linear import LinearController
    from cobald.decorator.standardiser import Standardiser

    choices = [
        {"minimum": 5.0, "maximum": 80.0},
        {"granularity": 8.0, "minimum": 0.0},
        {"surplus": 20.0, "backlog": 30.0, "minimum": 0.0},
        {"surplus": 5.5, "granularity": 3.0, "minimum": 2.0},
        {"backlog": 10.0, "granularity": 16.0, "maximum": 100.0, "minimum": 0.0},
        {"minimum": 7.0, "maximum": 90.0, "granularity": 5.0, "backlog": 12.0, "surplus": 9.0},
    ]
    found = []
    for limits in choices:
        keys = {**band(), "rate": round(dice.uniform(0.1, 3), 2)}
        pool = Plain(50)
        case = {"kind": "standardiser", "keys": keys, "limits": limits, "demand": 50.0}
        shaped = Standardiser(pool, **limits)
        made = LinearController(shaped, **keys)
        found.append(drive(case, pool, made.regulate, lambda shaped=shaped: shaped.demand))
    return found


def composites() -> list[dict[str, Any]]:
    from cobald.composite.uniform import UniformComposite
    from cobald.composite.weighted import WeightedComposite

    found = []
    for weight in ("supply", "utilisation", "allocation", "uniform", "tree"):
        pools = [Plain(dice.randint(0, 9)) for _ in range(4)]
        if weight == "uniform":
            made = UniformComposite(*pools)
        elif weight == "tree":
            made = WeightedComposite(WeightedComposite(*pools[:2]), WeightedComposite(*pools[2:]))
        else:
            made = WeightedComposite(*pools, weight=weight)
        start, steps = [one.demand for one in pools], []
        for _ in range(STEPS // 2):
            rows = [told() for _ in pools]
            for one, row in zip(pools, rows, strict=True):
                one.tell(*row)
            made.demand = wanted = round(dice.uniform(0, 500), 1)
            whole = [made.supply, made.demand, made.utilisation, made.allocation]
            steps.append([rows, wanted, [one.demand for one in pools], whole])
        found.append({"kind": weight, "start": start, "steps": steps})
    return found


def factory() -> dict[str, Any]:
    """A factory whose children supply all that they were asked for, each used differently."""
    from cobald.composite.factory import FactoryPool

    made: list[Plain] = []

    def make() -> Plain:
        made.append(Plain(8, 8))
        made[-1].utilisation = made[-1].allocation = round(1 - 1 / (1 + len(made)), 6)
        return made[-1]

    pool, steps = FactoryPool(factory=make), []
    for _ in range(STEPS):
        wanted = dice.randint(0, 200)
        pool.demand = wanted
        if pool.supply > pool.demand:
            pool._shrink(wanted)
        else:
            pool._grow(wanted)
        for one in made:
            one.supply = one.demand
        alive = [place for place, one in enumerate(made) if one.demand > 0]
        steps.append([wanted, alive, round(pool.utilisation, 9)])
    return {"kind": "factory", "steps": steps}


CONFIG = """
pipeline:
    - !LinearController
        low_utilisation: 0.4
        high_allocation: 0.6
        rate: 2
    - !Limiter
        minimum: 1
        maximum: 120
    - __type__: cobald.decorator.coarser.Coarser
      granularity: 4
    - !Standardiser
        surplus: 30
    - !Logger
        name: recorded
    - __type__: made.up.Plain
      demand: 10
logging:
    version: 1
"""


def config() -> dict[str, Any]:
    """A file that COBalD loads, and what it then does."""
    import types

    from cobald.daemon.core.config import load

    package, module = types.ModuleType("made"), types.ModuleType("made.up")
    vars(package)["up"], vars(module)["Plain"] = module, Plain
    sys.modules.update({"made": package, "made.up": module})
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cobald.yaml"
        file.write_text(CONFIG)
        with load(str(file)) as loaded:
            (pipeline,) = loaded.values()
    log = logging.getLogger("recorded")
    log.setLevel(logging.INFO)
    log.addHandler(Keep())
    top, pool = pipeline[0], pipeline[-1]
    case = {"kind": "config", "text": CONFIG, "demand": 10.0}
    done = drive(case, pool, top.regulate, lambda: top.target.demand)
    return {**done, "lines": lines}


def formats() -> list[list[Any]]:
    from cobald.monitor.format_json import JsonFormatter
    from cobald.monitor.format_line import LineProtocolFormatter

    found = []
    cases = [
        ("a b,c", {"value": 1.5, "text": 'say "no"', "site": "a,b=c d"}, ["site"], None),
        ("plain", {"value": 2, "site": "here"}, {"site": "x", "type": "t"}, 10),
        ("level %(value)s", {"value": 3.25}, None, 60),
        ("empty", {"value": 1.0, "message": "hidden"}, None, None),
    ]
    for message, fields, tags, resolution in cases:
        raw = {"name": "n", "msg": message, "args": fields, "created": 1700000003.5}
        line = LineProtocolFormatter(tags, resolution).format(logging.makeLogRecord(raw))
        text = JsonFormatter({"host": "h"}, "").format(logging.makeLogRecord(raw))
        found.append([message, fields, tags, resolution, line, text])
    return found


if __name__ == "__main__":
    whole = {
        "cobald": version("cobald"),
        "runs": [*controllers(), *shapes(), config()],
        "composites": composites(),
        "factory": factory(),
        "formats": formats(),
    }
    text = json.dumps(whole, separators=(",", ":"))
    sys.stdout.write(text.replace('{"kind"', '\n{"kind"') + "\n")
