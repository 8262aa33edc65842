"""From the tree of an expression to functions of an offer and a job.

The shapes that most requirements have, a name beside a number or text, get functions of their own.
"""

from __future__ import annotations

import fnmatch
import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from pilotage.match.expr import value
from pilotage.match.expr.tree import (
    ChainOp,
    FunctionCall,
    Items,
    Literal,
    Name,
    Negative,
    Node,
    Not,
    Pair,
)

Closure = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]

_NUMBERS = frozenset({int, float})
_TURNED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def closure(node: Node) -> Closure:
    """Make the function that evaluates a tree."""
    match node:
        case Literal(constant):
            return lambda _offer, _job: constant
        case Name():
            return _name(node)
        case Not(item):
            return _not(closure(item))
        case Negative(item):
            return _calculation("-", lambda _offer, _job: 0, closure(item))
        case ChainOp(sign, items):
            return _CHAINS[sign](tuple(closure(item) for item in items))
        case Items(items):
            return _items(tuple(closure(item) for item in items))
        case FunctionCall(name, items):
            return _CALLS[name](*(closure(item) for item in items))
        case Pair():
            return _pair(node)


def _name(node: Name) -> Closure:
    name = node.name
    if node.of == "offer":
        return lambda offer, _job: offer.get(name)
    return lambda _offer, job: job.get(name)


def _items(parts: tuple[Closure, ...]) -> Closure:
    return lambda offer, job: [part(offer, job) for part in parts]


def _pair(node: Pair) -> Closure:
    sign, left, right = node.sign, node.left, node.right
    if sign in value.COMPARE:
        if isinstance(left, Literal):
            sign, left, right = _TURNED[sign], right, left
        if isinstance(left, Name) and left.of == "offer" and isinstance(right, Literal):
            return _with_literal(sign, left.name, right.value)
        return _comparison(sign, closure(left), closure(right))
    if sign in value.CALCULATE:
        return _calculation(sign, closure(left), closure(right))
    if sign == "like" and isinstance(right, Literal):
        return _like(closure(left), str(right.value))
    if sign == "in" and isinstance(right, Items):
        constants = _constants(right)
        if constants is not None:
            return _among(closure(left), constants)
    one, other = closure(left), closure(right)
    if sign == "in":
        return lambda offer, job: value.member(one(offer, job), other(offer, job))
    wanted = sign == "is"
    return lambda offer, job: value.same(one(offer, job), other(offer, job)) is wanted


def _with_literal(sign: str, name: str, constant: object) -> Closure:
    compare, general = value.COMPARISONS[sign], value.COMPARE[sign]
    if type(constant) in _NUMBERS:

        def number(offer: Mapping[str, Any], _job: Mapping[str, Any]) -> bool | None:
            found = offer.get(name)
            return compare(found, constant) if type(found) in _NUMBERS else None

        return number
    if type(constant) is str:

        def text(offer: Mapping[str, Any], _job: Mapping[str, Any]) -> bool | None:
            found = offer.get(name)
            return compare(found, constant) if type(found) is str else None

        return text
    return lambda offer, _job: general(offer.get(name), constant)


def _comparison(sign: str, left: Closure, right: Closure) -> Closure:
    general = value.COMPARE[sign]
    return lambda offer, job: general(left(offer, job), right(offer, job))


def _calculation(sign: str, left: Closure, right: Closure) -> Closure:
    calculate = value.CALCULATE[sign]
    return lambda offer, job: calculate(left(offer, job), right(offer, job))


def _constants(node: Items) -> frozenset[object] | None:
    """Return the values of a list of texts, the usual list, for which there is a fast way."""
    found = {item.value for item in node.items if isinstance(item, Literal)}
    texts = all(type(one) is str for one in found)
    return frozenset(found) if texts and len(found) == len(node.items) else None


def _among(item: Closure, constants: frozenset[object]) -> Closure:
    def among(offer: Mapping[str, Any], job: Mapping[str, Any]) -> bool | None:
        found = item(offer, job)
        if type(found) is str:
            return found in constants
        return value.member(found, tuple(constants))

    return among


def _like(item: Closure, pattern: str) -> Closure:
    matches = re.compile(fnmatch.translate(pattern)).match

    def like(offer: Mapping[str, Any], job: Mapping[str, Any]) -> bool | None:
        found = item(offer, job)
        if not isinstance(found, str) or len(found) > value.LONGEST:
            return None
        return matches(found) is not None

    return like


def _not(item: Closure) -> Closure:
    def contrary(offer: Mapping[str, Any], job: Mapping[str, Any]) -> bool | None:
        found = item(offer, job)
        return None if found is not True and found is not False else not found

    return contrary


def _until(items: tuple[Closure, ...], *, decisive: bool) -> Closure:
    """Join truth values: one that is decisive settles it, and one that is undefined spoils it."""
    otherwise = not decisive

    def joined(offer: Mapping[str, Any], job: Mapping[str, Any]) -> bool | None:
        whole: bool | None = otherwise
        for item in items:
            found = item(offer, job)
            if found is decisive:
                return not otherwise
            if found is not otherwise:
                whole = None
        return whole

    return joined


def _extreme(choose: Callable[[list[Any]], Any], items: tuple[Closure, ...]) -> Closure:
    def extreme(offer: Mapping[str, Any], job: Mapping[str, Any]) -> value.Value:
        found = [item(offer, job) for item in items]
        if len(found) == 1 and isinstance(found[0], (list, tuple)):
            found = list(found[0][: value.LONGEST])
        if not found or not all(type(one) in _NUMBERS for one in found):
            return None
        return value.finite(choose(found))

    return extreme


def _rounded(towards: Callable[[float], int], item: Closure) -> Closure:
    def rounded(offer: Mapping[str, Any], job: Mapping[str, Any]) -> value.Value:
        found = item(offer, job)
        if type(found) not in _NUMBERS or value.finite(found) is None:
            return None
        return towards(found)

    return rounded


def _lower(item: Closure) -> Closure:
    def lower(offer: Mapping[str, Any], job: Mapping[str, Any]) -> value.Value:
        found = item(offer, job)
        return found.lower() if isinstance(found, str) and len(found) <= value.LONGEST else None

    return lower


def _if(condition: Closure, then: Closure, otherwise: Closure) -> Closure:
    def chosen(offer: Mapping[str, Any], job: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a value
        found = condition(offer, job)
        if found is True:
            return then(offer, job)
        return otherwise(offer, job) if found is False else None

    return chosen


_CHAINS = {
    "and": functools.partial(_until, decisive=False),
    "or": functools.partial(_until, decisive=True),
}
_CALLS: dict[str, Callable[..., Closure]] = {
    "min": lambda *items: _extreme(min, items),
    "max": lambda *items: _extreme(max, items),
    "floor": lambda item: _rounded(math.floor, item),
    "ceil": lambda item: _rounded(math.ceil, item),
    "defined": lambda item: lambda offer, job: value.clean(item(offer, job)) is not None,
    "lower": _lower,
    "version": lambda item: lambda offer, job: value.version(item(offer, job)),
    "if": _if,
}
