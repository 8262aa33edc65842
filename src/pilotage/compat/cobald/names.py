"""Our equivalents of COBalD's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from pilotage.base import errors
from pilotage.pool.composite import Factory, uniform, weighted
from pilotage.pool.controller import Linear, RelativeSupply, Switch
from pilotage.pool.decorator import Buffer, Coarser, Limiter, Logger, Standardiser

#: What makes something of arguments, in COBalD's order without the target.
Maker = Callable[..., Any]


def stage(kind: type[msgspec.Struct]) -> Maker:
    """Return what makes a controller or a decorator of checked arguments."""
    fields = kind.__struct_fields__

    def make(*args: Any, **keys: Any) -> Any:  # noqa: ANN401 - from a file
        if len(args) > len(fields):
            raise errors.ConfigError(f"{len(args)} arguments, of {len(fields)} that there are")
        given = dict(zip(fields, args, strict=False))
        if twice := sorted(given.keys() & keys.keys()):
            raise errors.ConfigError(f"`{twice[0]}` is given twice")
        unknown = sorted(keys.keys() - set(fields))
        if unknown:
            raise errors.ConfigError(f"there is no `{unknown[0]}`", hint=_near(fields))
        try:
            # Not strict: YAML 1.1 takes `1e3` for text.
            return msgspec.convert({**given, **keys}, kind, strict=False)
        except msgspec.ValidationError as error:
            raise errors.ConfigError(str(error)) from None

    return make


def _switch(default: Any, *others: Any, interval: float = 1.0) -> Switch:  # noqa: ANN401
    if len(others) % 2:
        raise errors.ConfigError("demands and controllers come in pairs")
    pairs = tuple(zip(others[::2], others[1::2], strict=True))
    if not all(isinstance(start, (int, float)) for start, _ in pairs):
        raise errors.ConfigError("each controller comes after the demand from which on it decides")
    return Switch(default, pairs, interval)


def _near(fields: tuple[str, ...]) -> str:
    return "there are " + ", ".join(fields)


#: COBalD's dotted names.
KNOWN: Mapping[str, Maker] = {
    "cobald.controller.linear.LinearController": stage(Linear),
    "cobald.controller.relative_supply.RelativeSupplyController": stage(RelativeSupply),
    "cobald.controller.switch.DemandSwitch": _switch,
    "cobald.decorator.standardiser.Standardiser": stage(Standardiser),
    "cobald.decorator.limiter.Limiter": stage(Limiter),
    "cobald.decorator.coarser.Coarser": stage(Coarser),
    "cobald.decorator.buffer.Buffer": stage(Buffer),
    "cobald.decorator.logger.Logger": stage(Logger),
    "cobald.composite.weighted.WeightedComposite": weighted,
    "cobald.composite.uniform.UniformComposite": uniform,
    "cobald.composite.factory.FactoryPool": Factory,
}

#: Tags: COBalD has the controllers and the shapes, the others are ours.
TAGS: Mapping[str, Maker] = {name.rpartition(".")[2]: make for name, make in KNOWN.items()}
