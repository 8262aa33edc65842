"""Requirements as HTCondor's users write them, made into ours.

Covered are attributes of machines and the `Request…` ones of jobs, literals, comparisons, logic,
arithmetic and a few functions. ClassAds compare text without regard to case, count memory in MiB
and disk in KiB: so does what comes out.
"""

from __future__ import annotations

import re

from pilotage.base import errors
from pilotage.match.expr import grammar, value
from pilotage.match.expr.token import wrong
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
    write,
)

_NAMES = {
    "cpus": "cpus",
    "totalcpus": "cpus",
    "memory": "memory",
    "totalmemory": "memory",
    "disk": "disk",
    "totaldisk": "disk",
    "gpus": "gpus",
    "totalgpus": "gpus",
    "opsys": "os",
    "arch": "arch",
    "machine": "host",
    "glidein_site": "site",
    "requestcpus": "job.cpus",
    "requestmemory": "job.memory",
    "requestdisk": "job.disk",
    "requestgpus": "job.gpus",
    "owner": "job.owner",
    "jobprio": "job.priority",
}
_FUNCTIONS = {
    "floor": "floor",
    "ceiling": "ceil",
    "tolower": "lower",
    "ifthenelse": "if",
    "isundefined": "isundefined",
}
_WORDS = {"true": "true", "false": "false", "undefined": "undefined", "is": "is", "isnt": "is not"}
_SIGNS = {"=?=": " is ", "=!=": " is not "}
_UNITS = {"memory": "MiB", "disk": "KiB"}
_BYTES = {"MiB": 2**20, "KiB": 2**10}
#: Attributes whose values we write in small letters.
_SMALL = frozenset({"os", "arch"})
_INSTEAD = {
    "stringlistmember": "write `site in ['a', 'b']` in our own language",
    "regexp": "write `host like 'node-*'` in our own language",
    "versioncmp": "write `version(x) >= '3.9'` in our own language",
}
_WORD = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*")|(?P<name>(?:(?:my|target)\s*\.\s*)?[A-Za-z_]\w*)(?P<call>\s*\()?"""
    r"|(?P<sign>=\?=|=!=|\?)|(?P<number>\d[\w.]*)|(?P<other>.)",
    re.ASCII | re.DOTALL | re.IGNORECASE,
)


def translate(text: str) -> str:
    """Write a ClassAd expression in our language, or raise `BadRule` for what has no like."""
    if not text.strip():
        raise errors.BadRule("the expression is empty")
    return write(_mended(grammar.tree("".join(_word(found) for found in _WORD.finditer(text)))))


def _word(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "name" | "call":
            return _name(found)
        case "sign":
            if found[0] == "?":
                raise wrong(found.start(), "`?` has no like here", "write `ifThenElse(c, a, b)`")
            return _SIGNS[found[0]]
        case _:
            return found[0]


def _name(found: re.Match[str]) -> str:
    scope, dot, last = (part.strip() for part in found["name"].rpartition("."))
    low = last.lower()
    if found["call"]:
        if low not in _FUNCTIONS:
            hint = _INSTEAD.get(low, f"known are {', '.join(sorted(_FUNCTIONS))}")
            raise wrong(found.start(), f"the function `{last}` has no like here", hint)
        # Undefined is what is not defined.
        return "!defined(" if low == "isundefined" else f"{_FUNCTIONS[low]}("
    if not dot and low in _WORDS:
        return _WORDS[low]
    name = _NAMES.get(low, last)
    if scope.lower() == "my" and not name.startswith("job."):
        raise wrong(found.start(), f"the job's attribute `{last}` has no like here")
    return name


def _mended(node: Node) -> Node:
    """Add units to numbers, and make comparisons of text case-insensitive."""
    match node:
        case Pair(sign, left, right) if sign in value.COMPARE:
            return _compared(sign, left, right)
        case Pair(sign, left, right):
            return Pair(sign, _mended(left), _mended(right))
        case Name(name) if name in _UNITS:
            unit = _UNITS[name]
            return Pair("/", node, Literal(_BYTES[unit], f"1{unit}"))
        case Not(item):
            return Not(_mended(item))
        case Negative(item):
            return Negative(_mended(item))
        case ChainOp(sign, items):
            return ChainOp(sign, tuple(_mended(item) for item in items))
        case FunctionCall(name, items):
            return FunctionCall(name, tuple(_mended(item) for item in items))
        case Literal() | Name() | Items():
            return node


def _compared(sign: str, left: Node, right: Node) -> Node:
    one, other = _unit(left), _unit(right)
    if one and one == other:
        return Pair(sign, left, right)
    if one and _whole(right):
        return Pair(sign, left, _scaled(right, one))
    if other and _whole(left):
        return Pair(sign, _scaled(left, other), right)
    if _text(left) or _text(right):
        return Pair(sign, _small(left), _small(right))
    return Pair(sign, _mended(left), _mended(right))


def _unit(node: Node) -> str:
    return _UNITS.get(node.name, "") if isinstance(node, Name) else ""


def _whole(node: Node) -> bool:
    return isinstance(node, Literal) and type(node.value) is int and node.text.isdecimal()


def _scaled(node: Node, unit: str) -> Node:
    if not isinstance(node, Literal) or not isinstance(node.value, int):
        return node
    return Literal(node.value * _BYTES[unit], f"{node.text}{unit}")


def _text(node: Node) -> bool:
    return isinstance(node, Literal) and isinstance(node.value, str)


def _small(node: Node) -> Node:
    if isinstance(node, Literal) and isinstance(node.value, str):
        small = node.value.lower()
        quoted = small.replace("\\", "\\\\").replace("'", "\\'")
        return Literal(small, f"'{quoted}'")
    if isinstance(node, Name) and node.name in _SMALL:
        return node
    deaf = isinstance(node, FunctionCall) and node.name == "lower"
    return _mended(node) if deaf else FunctionCall("lower", (_mended(node),))
