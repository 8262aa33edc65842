"""Parse the tokens of an expression into its tree (a Pratt parser)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pilotage.base import errors
from pilotage.match.expr.token import ExprToken, tokens, wrong
from pilotage.match.expr.tree import (
    BINDS,
    ChainOp,
    FunctionCall,
    Items,
    Literal,
    Name,
    Negative,
    Node,
    Not,
    Pair,
    children,
)

#: The most parts of an expression, and how deep they may be nested.
MOST_PARTS = 256
DEEPEST = 32

#: Functions, with the least and the greatest number of their arguments.
FUNCTIONS = {
    "min": (1, 64),
    "max": (1, 64),
    "floor": (1, 1),
    "ceil": (1, 1),
    "defined": (1, 1),
    "lower": (1, 1),
    "version": (1, 1),
    "if": (3, 3),
}
#: What is known of every job.
OF_JOBS = frozenset(
    {"cpus", "memory", "disk", "gpus", "time", "priority", "owner", "name", "image"}
)

_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "undefined": None}
_COMPARES = BINDS["=="]
_TIGHT = 7
_VALUE = "a value is wanted here"


def tree(source: str) -> Node:
    """Read an expression."""
    return _Reader(list(tokens(source))).whole()


class _Reader:
    """A place in the words of an expression."""

    def __init__(self, words: list[ExprToken]) -> None:
        self._words = words
        self._at = 0
        self._parts = 0
        self._depth = 0

    def whole(self) -> Node:
        if self._words[0].kind == "end":
            raise errors.BadRule("the expression is empty", hint="write `true` for anywhere")
        node = self._read(0)
        if self._here.kind != "end":
            raise self._unexpected()
        if _depth(node) > DEEPEST:
            raise errors.BadRule(f"the expression is more than {DEEPEST} deep")
        return node

    @property
    def _here(self) -> ExprToken:
        return self._words[self._at]

    def _next(self) -> ExprToken:
        word = self._words[self._at]
        self._at += word.kind != "end"
        return word

    def _count(self) -> None:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise wrong(self._here.at, f"the expression has more than {MOST_PARTS} parts")

    def _taken(self, sign: str) -> bool:
        found = self._here.kind == "sign" and self._here.word == sign
        self._at += found
        return found

    def _wanted(self, sign: str) -> None:
        if not self._taken(sign):
            raise self._unexpected(f"`{sign}` is wanted here")

    def _unexpected(self, wanted: str = "") -> errors.BadRule:
        word = self._here
        what = f"`{word.word}`" if word.kind != "end" else "the end"
        if not wanted:
            return wrong(word.at, f"{what} cannot stand here", "`and` or `or` may be missing")
        return wrong(word.at, f"{wanted}, not {what}")

    def _read(self, least: int) -> Node:
        self._depth += 1
        if self._depth > 2 * DEEPEST:
            raise wrong(self._here.at, f"the expression is more than {DEEPEST} deep")
        left = self._first()
        while (sign := self._sign()) and BINDS[sign] >= max(least, 1):
            left = self._pair(left, sign)
        self._depth -= 1
        return left

    def _sign(self) -> str:
        """Return the sign between two values that comes next, or nothing."""
        word = self._here
        if word.kind != "sign":
            return ""
        if word.word == "not":
            following = self._words[self._at + 1]
            return "in" if following.kind == "sign" and following.word == "in" else ""
        return word.word if word.word in BINDS else ""

    def _pair(self, left: Node, sign: str) -> Node:
        self._count()
        begin = self._next()
        binds = BINDS[sign]
        contrary = sign == "in" and begin.word == "not"
        if contrary:
            self._next()
        if sign == "is" and self._taken("not"):
            sign = "is not"
        if sign in {"and", "or"}:
            return self._chain(left, sign)
        right = self._read(binds + 1)
        if sign == "like" and not (isinstance(right, Literal) and isinstance(right.value, str)):
            raise wrong(begin.at, "after `like` stands a pattern", "write `host like 'node-*'`")
        if binds == _COMPARES == BINDS.get(self._sign()):
            hint = "write `a < b and b < c`"
            raise wrong(self._here.at, "comparisons do not chain", hint)
        _check_versions(begin, left, right)
        pair = Pair(sign, left, right)
        return Not(pair) if contrary else pair

    def _chain(self, left: Node, sign: str) -> Node:
        items = [left, self._read(BINDS[sign] + 1)]
        while self._taken(sign):
            items.append(self._read(BINDS[sign] + 1))
        flat: list[Node] = []
        for item in items:
            flat += item.items if isinstance(item, ChainOp) and item.sign == sign else (item,)
        return ChainOp("and" if sign == "and" else "or", tuple(flat))

    def _first(self) -> Node:
        self._count()
        word = self._next()
        match word.kind:
            case "number" | "text":
                return Literal(word.value, word.word)
            case "name":
                return self._name(word)
            case "sign" if word.word in _CONSTANTS:
                return Literal(_CONSTANTS[word.word], word.word)
            case _:
                return self._prefix(word)

    def _prefix(self, word: ExprToken) -> Node:
        match word.word:
            case "not":
                return Not(self._read(BINDS["not"]))
            case "!":
                return Not(self._read(_TIGHT))
            case "-":
                return Negative(self._read(_TIGHT))
            case "(":
                node = self._read(0)
                self._wanted(")")
                return node
            case "[":
                return Items(self._items("]"))
            case _:
                pass
        self._at -= word.kind != "end"
        raise self._unexpected(_VALUE)

    def _name(self, word: ExprToken) -> Node:
        if self._taken("("):
            return self._call(word)
        first, dot, rest = word.word.partition(".")
        if first == "job" and dot:
            if rest not in OF_JOBS:
                hint = closest(rest, OF_JOBS, "job.")
                raise wrong(word.at, f"a job has no attribute `{rest}`", hint)
            return Name(rest, "job")
        if first == "offer" and dot:
            return Name(rest)
        return Name(word.word)

    def _call(self, word: ExprToken) -> Node:
        if word.word not in FUNCTIONS:
            hint = closest(word.word, FUNCTIONS)
            raise wrong(word.at, f"there is no function `{word.word}`", hint)
        items = self._items(")")
        least, most = FUNCTIONS[word.word]
        if not least <= len(items) <= most:
            count = str(least) if least == most else f"{least} to {most}"
            raise wrong(word.at, f"`{word.word}` takes {count} values, not {len(items)}")
        if word.word == "version":
            _check_versions(word, items[0])
        return FunctionCall(word.word, items)

    def _items(self, end: str) -> tuple[Node, ...]:
        found: list[Node] = []
        while not self._taken(end):
            if found:
                self._wanted(",")
            found.append(self._read(0))
        return tuple(found)


def closest(word: str, known: Iterable[str], before: str = "") -> str:
    """Write a hint that names what was probably meant, or else all that is known."""
    names = sorted(known)
    near = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    if near:
        return f"did you mean `{before}{near[0]}`?"
    return f"known are {', '.join(f'`{before}{name}`' for name in names)}" if names else ""


def _check_versions(word: ExprToken, *items: Node) -> None:
    """Complain of `3.10` as a version: as a number it is 3.1."""
    among = word.word == "version" or any(
        isinstance(item, FunctionCall) and item.name == "version" for item in items
    )
    for item in items:
        if among and isinstance(item, Literal) and isinstance(item.value, (int, float)):
            hint = f"write it as text: `'{item.text}'`"
            raise wrong(word.at, f"the number `{item.text}` is no version", hint)


def _depth(node: Node) -> int:
    return 1 + max((_depth(child) for child in children(node)), default=0)
