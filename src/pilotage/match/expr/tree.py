"""An expression as a tree, and the tree as text again."""

from __future__ import annotations

from typing import Literal as OneOf

import msgspec


class Literal(msgspec.Struct, frozen=True):
    """A value that stands in the expression."""

    value: bool | int | float | str | None
    #: As a person wrote it, such as `4G`.
    text: str


class Name(msgspec.Struct, frozen=True):
    """An attribute of the offer or of the job."""

    name: str
    of: OneOf["offer", "job"] = "offer"


class Not(msgspec.Struct, frozen=True):
    """The contrary."""

    item: Node


class Negative(msgspec.Struct, frozen=True):
    """A number below zero."""

    item: Node


class ChainOp(msgspec.Struct, frozen=True):
    """Several things of which all or any must be true."""

    sign: OneOf["and", "or"]
    items: tuple[Node, ...]


class Pair(msgspec.Struct, frozen=True):
    """Two values and what is between them: a comparison or a calculation."""

    sign: str
    left: Node
    right: Node


class Items(msgspec.Struct, frozen=True):
    """A list."""

    items: tuple[Node, ...]


class FunctionCall(msgspec.Struct, frozen=True):
    """A function and its arguments."""

    name: str
    items: tuple[Node, ...]


Node = Literal | Name | Not | Negative | ChainOp | Pair | Items | FunctionCall

#: How tightly signs hold together what stands beside them.
BINDS = {
    "or": 1,
    "and": 2,
    "not": 3,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in", "is", "is not", "like"), 4),
    "+": 5,
    "-": 5,
    "*": 6,
    "/": 6,
    "%": 6,
}
_TIGHT = 7
_ATOM = 8


def children(node: Node) -> tuple[Node, ...]:
    """Return what a node is made of."""
    match node:
        case Literal() | Name():
            return ()
        case Not(item) | Negative(item):
            return (item,)
        case Pair(_, left, right):
            return left, right
        case ChainOp(_, items) | Items(items) | FunctionCall(_, items):
            return items


def names(node: Node, of: OneOf["offer", "job"]) -> frozenset[str]:
    """Return the attributes of the offer or of the job that a tree asks for."""
    if isinstance(node, Name):
        return frozenset({node.name}) if node.of == of else frozenset()
    return frozenset[str]().union(*(names(child, of) for child in children(node)))


def write(node: Node) -> str:
    """Write a tree as text that reads as the same tree."""
    match node:
        case Literal(_, text):
            return text
        case Name(name, of):
            return name if of == "offer" else f"job.{name}"
        case Not(item):
            return f"not {_inside(item, BINDS['not'])}"
        case Negative(item):
            return f"-{_inside(item, _TIGHT)}"
        case ChainOp(sign, items):
            return f" {sign} ".join(_inside(item, BINDS[sign] + 1) for item in items)
        case Pair(sign, left, right):
            binds = BINDS[sign]
            # Comparisons do not chain; calculations go from left to right.
            first = _inside(left, binds + (binds == BINDS["=="]))
            return f"{first} {sign} {_inside(right, binds + 1)}"
        case Items(items):
            return f"[{', '.join(write(item) for item in items)}]"
        case FunctionCall(name, items):
            return f"{name}({', '.join(write(item) for item in items)})"


def _inside(node: Node, least: int) -> str:
    return write(node) if _binds(node) >= least else f"({write(node)})"


def _binds(node: Node) -> int:
    match node:
        case ChainOp(sign) | Pair(sign):
            return BINDS[sign]
        case Not():
            return BINDS["not"]
        case Negative():
            return _TIGHT
        case _:
            return _ATOM
