"""One requirement of a job: whether an offer meets it, by which values, and which value would."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from pilotage.base import text
from pilotage.job.model import Resources
from pilotage.match import expr
from pilotage.match.expr import tree
from pilotage.match.expr.value import COMPARE, is_number
from pilotage.match.submission import FOLDER

_BYTES = frozenset({"memory", "disk"})
_SPANS = frozenset({"time", "time left"})
_BINARY = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20))
_DECIMAL = (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3))
_LARGEST = 2**100
_TIMES = (("d", 86400), ("h", 3600), ("min", 60))


def figure(value: object, names: Collection[str] = (), *, up: bool = False) -> str:
    """Write a value of these attributes; a number that is cut goes down, or up."""
    match value:
        case None:
            return "undefined"
        case bool():
            return "true" if value else "false"
        case int() | float() if not abs(value) < _LARGEST:
            return "any"
        case int() | float() if _BYTES.intersection(names) and value >= 1000:
            return _size(value, up=up)
        case int() | float() if _SPANS.intersection(names) and value >= 60:
            return _span(value, up=up)
        case int() | float():
            return str(int(value)) if value == int(value) else repr(value)
        case str():
            quoted = text.show(value).replace("\\", "\\\\").replace("'", "\\'")
            return f"'{quoted}'"
        case list() | tuple():
            return f"[{', '.join(figure(one) for one in value)}]"
        case _:
            return "undefined"


def _size(value: float, *, up: bool) -> str:
    for unit, size in _BINARY:
        if value >= size and value % size == 0:
            return f"{int(value // size)}{unit}"
    for unit, size in _DECIMAL:
        if value >= size:
            return f"{_cut(value, size, up=up)}{unit}"
    return str(int(value))


def _span(value: float, *, up: bool) -> str:
    for unit, length in _TIMES:
        if value >= length and value % length == 0:
            return f"{int(value // length)}{unit}"
    return f"{math.ceil(value) if up else math.floor(value)}s"


def _cut(value: float, size: int, *, up: bool) -> str:
    whole = math.ceil(value) if up else math.floor(value)
    tenths = -(-whole * 10 // size) if up else whole * 10 // size
    return str(tenths // 10) if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}"


_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_DROPPED = 3.0


class Edit(NamedTuple):
    """A change of a clause with which an offer would do."""

    words: str
    #: How much is asked of a person; more is worse.
    cost: float
    #: What is asked for then; nothing if it is dropped.
    then: expr.Expr | None


class Asked:
    """A clause of the requirements, or a need of the job itself."""

    def __init__(self, clause: expr.Expr, job: Mapping[str, Any], *, need: bool = False) -> None:
        """Split a comparison into the offer's side, the sign and the value that is wanted."""
        self.text = clause.text
        self.expr = clause
        self.job = job
        self.need = need
        self._edits: dict[tuple[type, object], Edit] = {}
        self.sign, self.side, self.want = "", clause, None
        node = clause.tree
        if isinstance(node, tree.Pair) and node.sign in COMPARE:
            left, right, sign = node.left, node.right, node.sign
            if not tree.names(left, "offer"):
                left, right, sign = right, left, _TURNED.get(sign, sign)
            if tree.names(left, "offer") and not tree.names(right, "offer"):
                self.sign = sign
                self.side = expr.Expr(left, tree.write(left))
                self.want = expr.Expr(right, tree.write(right)).evaluate({}, job)

    def have(self, offer: Mapping[str, Any]) -> object:
        """Return the offer's side of the comparison."""
        return self.side.evaluate(offer, self.job)

    def show(self, value: object) -> str:
        """Write a value of the offer's side."""
        return figure(value, self.side.names, up=self.sign in {"<", "<="})

    def edit(self, offer: Mapping[str, Any]) -> Edit:
        """Return how the clause would have to be for this offer."""
        have = self.have(offer)
        if isinstance(have, (list, tuple)):
            return self._edit(have)
        key = (type(have), have)
        if key not in self._edits:
            self._edits[key] = self._edit(have)
        return self._edits[key]

    def _edit(self, have: object) -> Edit:
        want = self.want
        if self.sign in _TURNED and _usual(have) and _usual(want):
            return self._relaxed(have, want)
        if self.sign == "==" and isinstance(have, str) and isinstance(want, str):
            near = difflib.SequenceMatcher(None, have.lower(), want.lower()).ratio()
            if near > 0.75:
                return self._rewritten("==", self.show(have), 1 - near)
        if self.text == FOLDER:
            return Edit(
                "declare all that it reads and writes, as inputs and outputs", _DROPPED, None
            )
        return Edit(f"drop the clause `{self.text}`", _DROPPED, None)

    def _relaxed(self, have: Any, want: Any) -> Edit:  # noqa: ANN401 - numbers, as was asked before
        larger, smaller = max(abs(have), abs(want)), max(1e-9, min(abs(have), abs(want)))
        far = math.log(max(1.0, larger / smaller))
        # Less than dropping it, however far it is, and never the same for two that differ.
        cost = _DROPPED * far / (far + 1)
        shown = self.show(have)
        if not self.need:
            return self._rewritten(">=" if self.sign[0] == ">" else "<=", shown, cost)
        ask = f"ask for {self.side.text} ≤ {shown}" if have > 0 else f"ask for no {self.side.text}"
        return Edit(ask, cost, expr.parse(f"{self.side.text} >= {shown}"))

    def _rewritten(self, sign: str, shown: str, cost: float) -> Edit:
        written = f"{_operand(self.side.tree)} {sign} {shown}"
        node = tree.Pair(sign, self.side.tree, expr.parse(shown).tree)
        words = f"write `{written}` instead of `{self.text}`"
        return Edit(words, cost, expr.Expr(node, written))


def needs(wanted: Resources) -> list[Asked]:
    """Write what a job needs as clauses."""
    found = []
    for name in ("cpus", "memory", "gpus", "disk", "time"):
        value = getattr(wanted, name)
        if value:
            node = tree.Pair(
                ">=", tree.Name(name), tree.Literal(value, figure(value, {name}, up=True))
            )
            found.append(Asked(expr.Expr(node, tree.write(node)), {}, need=True))
    return found


def required(text: str, job: Mapping[str, Any]) -> list[Asked]:
    """Split requirements into clauses."""
    if not text:
        return []
    return [Asked(clause, job) for clause in expr.clauses(expr.parse(text))]


def meant(name: str, known: Iterable[str]) -> str:
    """Name the attribute that was probably meant, or nothing."""
    names = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    return f"; did you mean `{names[near[0]]}`?" if near else ""


def _usual(value: Any) -> bool:  # noqa: ANN401 - a value
    return is_number(value) and abs(value) < 2**80


def _operand(node: tree.Node) -> str:
    written = tree.write(tree.Pair("==", node, tree.Literal(0, "0")))
    return written.removesuffix(" == 0")
