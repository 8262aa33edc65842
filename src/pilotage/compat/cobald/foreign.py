"""Adapters for classes that implement COBalD's interface.

They are handed a probe in place of their target. It shows them a reading and takes down what they
ask for, so that what they decide can be planned before it is done.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pilotage.base import errors
from pilotage.pool.controller import Stepwise
from pilotage.pool.model import Decision, Decorated, Reading, View
from pilotage.pool.pipeline import Stage, StageChain
from pilotage.pool.words import volume

#: Where packages say which tags they bring.
GROUP = "cobald.config.yaml_constructors"
#: What COBalD's pools do not know of.
_ON_THE_WAY = ("queued", "booting", "draining")


@dataclass(eq=False)
class Probe:
    """Stands for the target of a class of others."""

    reading: Reading = field(default_factory=lambda: Reading(0.0, 0.0), init=False)
    #: What was asked for since the last reading.
    asked: float | None = field(default=None, init=False)

    def show(self, reading: Reading) -> None:
        """Show another reading."""
        self.reading = reading.assumed()
        self.asked = None

    @property
    def supply(self) -> float:
        """The volume that is provided."""
        return self.reading.supply

    @property
    def utilisation(self) -> float | None:
        """The fraction that is made use of."""
        return self.reading.utilisation

    @property
    def allocation(self) -> float | None:
        """The fraction that is taken."""
        return self.reading.allocation

    @property
    def demand(self) -> float:
        """What was asked for last."""
        return self.reading.demand if self.asked is None else self.asked

    @demand.setter
    def demand(self, value: float) -> None:
        self.asked = float(value)


class Decider(Stage, frozen=True):
    """A controller of others: anything with `regulate(interval)`."""

    inner: Any
    probe: Probe
    interval: float = 1.0

    def decide(self, reading: Reading, elapsed: float, state: Any = None) -> Decision:  # noqa: ANN401, ARG002
        """Let it regulate the probe."""
        self.probe.show(reading)
        self.inner.regulate(elapsed)
        asked, name = self.probe.asked, type(self.inner).__qualname__
        if asked is None:
            return Decision(reading.demand, f"{name} leaves it as it is", hold=True)
        return Decision(asked, f"{name} asks for {volume(asked)} and does not say why")


class Decorator(Stage, frozen=True):
    """A decorator of others: a pool that stands above a target."""

    inner: Any
    probe: Probe

    def see(self, below: View, state: Any) -> Reading:  # noqa: ANN401, ARG002
        """Show the pool as it shows it."""
        self.probe.show(below.reading)
        inner = self.inner
        seen = Reading.of(inner.supply, inner.demand, inner.utilisation, inner.allocation)
        on_the_way = {name: getattr(below.reading, name) for name in _ON_THE_WAY}
        return msgspec.structs.replace(seen, **on_the_way)

    def decorate(self, demand: float | None, below: View, elapsed: float, state: Any) -> Decorated:  # noqa: ANN401, ARG002
        """Ask it, and pass on what it asks the probe for."""
        self.probe.show(below.reading)
        if demand is None:
            return Decorated(None, self.inner.demand)
        self.inner.demand = demand
        asked, name = self.probe.asked, type(self.inner).__qualname__
        words = "" if asked in {None, demand} else f"{name} makes {volume(asked or 0.0)} of it"
        return Decorated(asked, self.inner.demand, words)


def stand(found: Any, args: tuple[Any, ...], keys: dict[str, Any]) -> StageChain | Stage:  # noqa: ANN401
    """Make something that stands above a target."""
    if hasattr(found, "base") and hasattr(found, "rules"):
        # COBalD's `stepwise`, which cannot be asked to decide once.
        return Stepwise(found.base, tuple(found.rules), *args, **keys)
    probe = Probe()
    inner = found(*args, target=probe, **keys)
    if hasattr(inner, "regulate"):
        return Decider(inner, probe, float(getattr(inner, "interval", 1.0)))
    if all(hasattr(inner, name) for name in ("supply", "demand", "utilisation", "allocation")):
        return Decorator(inner, probe)
    raise errors.ConfigError(f"{type(inner).__qualname__} neither decides nor is a pool")


def find(name: str, allow: Sequence[str]) -> Any:  # noqa: ANN401 - whatever has that name
    """Import what a dotted name stands for, if the user allows it."""
    if not any(_covers(one, name) for one in allow):
        hint = f"it runs code of that package; if you trust it, `--allow-import {name}`"
        raise errors.ConfigError(f"`{name}` is not one of ours", hint=hint)
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:end])
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name and (module == error.name or module.startswith(error.name + ".")):
                continue
            raise errors.ConfigError(f"`{module}` cannot be imported: {error}") from None
        for part in parts[end:]:
            found = getattr(found, part, None)
        if found is not None:
            _own(found, name, allow)
            return found
    raise errors.ConfigError(f"there is no `{name}`")


def tagged(tag: str) -> str | None:
    """Return the dotted name that an installed package gives to a tag."""
    for entry in importlib.metadata.entry_points(group=GROUP):
        if entry.name == tag:
            return entry.value.replace(":", ".")
    return None


def _own(found: Any, name: str, allow: Sequence[str]) -> None:  # noqa: ANN401
    """Refuse what a package that is allowed as a whole has only imported, such as `os`."""
    # COBalD's `stepwise` makes things of its own; what they begin with is of the package.
    place = getattr(getattr(found, "base", found), "__module__", None)
    if name not in allow and not any(_covers(one, f"{place}.") for one in allow):
        hint = f"if you trust it, name it in full: `--allow-import {name}`"
        raise errors.ConfigError(f"`{name}` is not of that package", hint=hint)


def _covers(allowed: str, name: str) -> bool:
    if allowed.endswith(".*"):
        return name.startswith(allowed[:-1])
    return allowed == name
