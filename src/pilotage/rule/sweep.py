"""Sweeps: variables and their values come in, points go out, one job each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

from pilotage.base import errors, names
from pilotage.rule.span import key

#: A rule with more points than this is taken for a mistake.
MOST_POINTS = 1_000_000

Mode = Literal["product", "zip"]

_RANGE_KEYS = frozenset({"start", "stop", "step", "jump"})


def points(spec: Mapping[str, Any], mode: Mode = "product") -> tuple[dict[str, Any], ...]:
    """Return every point: each variable is a list or a range with both ends included."""
    if not spec:
        raise errors.BadRule(
            "a sweep has no variables", hint="write `sweep = { level = [1, 2, 3] }`, or none"
        )
    lists: dict[str, Sequence[Any]] = {}
    for name, value in spec.items():
        with key(str(name)):
            lists[names.check_parameter(name)] = values(value, name)
    sizes = [len(found) for found in lists.values()]
    if mode == "zip":
        if len(set(sizes)) > 1:
            told = ", ".join(f"{name} has {len(found)}" for name, found in lists.items())
            raise errors.BadRule(
                f"the variables of a zipped sweep differ in length: {told}",
                hint='`sweep_mode = "product"` combines each value with each',
            )
        return tuple(
            dict(zip(lists, point, strict=True)) for point in zip(*lists.values(), strict=True)
        )
    if mode != "product":
        raise errors.BadRule(f"a sweep cannot be {mode!r}", hint="known are `product`, `zip`")
    _cap(math.prod(sizes), "the sweep")
    return tuple(
        dict(zip(lists, point, strict=True)) for point in itertools.product(*lists.values())
    )


def values(spec: Any, name: str) -> Sequence[Any]:  # noqa: ANN401 - what a person wrote
    """Return the values of one variable."""
    if isinstance(spec, Mapping):
        return _range(spec, name)
    if not isinstance(spec, (list, tuple)):
        raise errors.BadRule(
            f"{name!r} is {spec!r}: a sweep variable is a list or a range",
            hint=f"write `{name} = [1, 2]` or `{name} = {{ start = 1, stop = 9, step = 2 }}`",
        )
    if not spec:
        raise errors.BadRule(f"{name!r} sweeps over an empty list: no job would ever be made")
    _cap(len(spec), repr(name))
    return spec


def _range(spec: Mapping[str, Any], name: str) -> list[float]:
    for word in spec:
        if word not in _RANGE_KEYS:
            raise errors.BadRule(
                f"the range of {name!r} has an unknown key {word!r}",
                hint=names.closest(str(word), ("start", "stop", "step")),
            )
    if "step" in spec and "jump" in spec:
        raise errors.BadRule(f"the range of {name!r} has `step` and `jump`, which mean the same")
    ends = {"step": spec.get("jump", 1), **spec}
    start, stop, step = (_number(ends, end, name) for end in ("start", "stop", "step"))
    if step == 0:
        raise errors.BadRule(f"the range of {name!r} has step 0 and would never end")
    count = (stop - start) // step + 1
    if count < 1:
        raise errors.BadRule(
            f"the range of {name!r} is empty: a step of {ends['step']} never gets "
            f"from {ends['start']} to {ends['stop']}",
            hint=f"write `step = {-ends['step']}`",
        )
    _cap(count, repr(name))
    exact = all(isinstance(ends[end], int) for end in ("start", "stop", "step"))
    # Fractions of what was written, so that 0 to 0.3 by 0.1 is 0.0, 0.1, 0.2, 0.3 and no more.
    steps = (start + at * step for at in range(count))
    return [int(value) for value in steps] if exact else [float(value) for value in steps]


def _number(ends: Mapping[str, Any], end: str, name: str) -> Fraction:
    if end not in ends:
        raise errors.BadRule(
            f"the range of {name!r} has no `{end}`", hint="give `start`, `stop` and `step`"
        )
    value = ends[end]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not _is_sane(value):
        raise errors.BadRule(f"`{end}` of the range of {name!r} is {value!r}, not a finite number")
    return Fraction(Decimal(repr(value)))


def _is_sane(value: float) -> bool:
    return abs(value) < 2**1023


def _cap(count: int, what: str) -> None:
    if count > MOST_POINTS:
        raise errors.BadRule(f"{what} has {count} points; more than {MOST_POINTS} are refused")
