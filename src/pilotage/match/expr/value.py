"""Values and what can be done with them; all that makes no sense is undefined, which is `None`.

Types never mix: `true == 1` and `'4' > 3` are undefined, not false. Whole and other numbers are one
type. Text is compared letter by letter. A version meets a version, or text that is read as one.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

#: What an expression can be; `None` is undefined.
Value: TypeAlias = "bool | int | float | str | Version | Sequence[Value] | None"
#: What names stand for.
Attributes: TypeAlias = Mapping[str, Any]

#: Longer text and lists have no value: work is bounded whatever an offer says of itself.
LONGEST = 1024

_NUMBERS = frozenset({int, float})
_PART = re.compile(r"\d{1,18}|[a-z]{1,18}", re.ASCII)


class Version(tuple[tuple[int, int, str], ...]):
    """A version number whose parts are compared as numbers."""

    __slots__ = ()


def is_number(value: object) -> bool:
    """Tell numbers from all else, `true` and `false` included."""
    return type(value) in _NUMBERS


def clean(value: object) -> Value:
    """Make what is no value undefined."""
    kind = type(value)
    if kind in _NUMBERS or kind is bool:
        return value if value == value else None  # type: ignore[return-value]  # noqa: PLR0124 - not a number is not itself
    if isinstance(value, (str, list, tuple)) and len(value) <= LONGEST:
        return value
    return None


def version(value: object) -> Version | None:
    """Read text such as `3.11.2` or `5.0-rc1` as a version; `3.11` is `3.11.0`."""
    if isinstance(value, Version):
        return value
    if type(value) is int:
        value = str(value) if 0 <= value < 10**18 else ""
    return _version(value) if isinstance(value, str) and len(value) <= LONGEST else None


@functools.lru_cache(maxsize=1024)
def _version(text: str) -> Version | None:
    found = _PART.findall(text.lower().removeprefix("v"))
    if not found or not found[0].isdigit():
        return None
    parts: list[tuple[int, int, str]] = []
    for part in (*found, ""):
        if not part.isdigit():
            # 5.0-rc1 is 5-rc1, and 5.0 is 5.
            while len(parts) > 1 and parts[-1] == (1, 0, ""):
                parts.pop()
        parts.append((1, int(part), "") if part.isdigit() else (-1, 0, part))
    # The end comes after letters and before numbers: 5.0-rc1 < 5.0 < 5.0.1.
    return Version((*parts[:-1], (0, 0, "")))


def comparison(compare: Callable[[Any, Any], bool]) -> Callable[[object, object], bool | None]:
    """Make a comparison of Python one of values: undefined unless both are of one type."""
    ordered = compare not in {operator.eq, operator.ne}

    def compared(left: object, right: object) -> bool | None:
        one, other = type(left), type(right)
        if (one in _NUMBERS and other in _NUMBERS) or one is other is str:
            return compare(left, right)
        if one is other is bool:
            return None if ordered else compare(left, right)
        if one is Version or other is Version:
            left, right = version(left), version(right)
            return None if left is None or right is None else compare(left, right)
        return None

    return compared


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
COMPARE = {sign: comparison(compare) for sign, compare in COMPARISONS.items()}


def arithmetic(calculate: Callable[[Any, Any], Any]) -> Callable[[object, object], Value]:
    """Make an operator of Python one of values: undefined where there is no finite number."""

    def calculated(left: object, right: object) -> Value:
        if type(left) not in _NUMBERS or type(right) not in _NUMBERS:
            return None
        try:
            return finite(calculate(left, right))
        except (ArithmeticError, ValueError):
            return None

    return calculated


def finite(number: float) -> float | None:
    """Return a number that is one."""
    return number if isinstance(number, int) or math.isfinite(number) else None


CALCULATE = {
    "+": arithmetic(operator.add),
    "-": arithmetic(operator.sub),
    "*": arithmetic(operator.mul),
    "/": arithmetic(operator.truediv),
    "%": arithmetic(operator.mod),
}


def same(left: object, right: object) -> bool:
    """Return whether two values are one and the same; undefined is the same as undefined."""
    left, right = clean(left), clean(right)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        kinds = isinstance(left, Version) is isinstance(right, Version)
        return kinds and list(left) == list(right)
    return left is right or COMPARE["=="](left, right) is True


def member(value: object, of: object) -> bool | None:
    """Return whether a list has a value."""
    if value is None or not isinstance(of, (list, tuple)) or len(of) > LONGEST:
        return None
    equal = COMPARE["=="]
    unsure: bool | None = False
    for each in of:
        if equal(value, each):
            return True
        if each is None:
            unsure = None
    return unsure
