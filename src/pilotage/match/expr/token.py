"""Split the text of an expression into tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from pilotage.base import errors, units

#: An expression has at most this many characters.
LONGEST = 4096

Kind = Literal["number", "text", "name", "sign", "end"]

KEYWORDS = frozenset({"and", "or", "not", "in", "is", "like", "true", "false", "undefined"})

_WORD = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?P<unit>[A-Za-z]\w*)?)"
    r"|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"
    r"|(?P<sign>==|!=|<=|>=|&&|\|\||[-+*/%<>!()\[\],])",
    re.ASCII | re.DOTALL,
)
_SIZE = re.compile(r"(?:[kKMGTPgtp]i?|[KMGTP]i)?[bB]?", re.ASCII)
_SPAN = frozenset({"ms", "s", "min", "h", "d", "w"})
_SIGNS = {"&&": "and", "||": "or"}
_MEANT = {
    "=": "to compare, write `==`",
    "=>": "write `>=`",
    "=<": "write `<=`",
    "=~": "to compare with a pattern, write `name like 'node-*'`",
    "&": "write `and`",
    "|": "write `or`",
    "'": "a quote is not closed",
    '"': "a quote is not closed",
    "~": "to compare with a pattern, write `name like 'node-*'`",
    "?": "write `if(condition, then, otherwise)`",
    "{": "a list is written `[1, 2]`",
}


class ExprToken(NamedTuple):
    """One token of an expression."""

    kind: Kind
    #: As it stands there, and `and` for `&&`.
    word: str
    #: Where it begins, counted from 0.
    at: int
    #: The value of a number or text.
    value: float | str = ""


def wrong(at: int, words: str, hint: str = "") -> errors.BadRule:
    """Return what is wrong with an expression, and where."""
    return errors.BadRule(f"at character {at + 1} of the expression: {words}", hint=hint)


def tokens(source: str) -> Iterator[ExprToken]:
    """Split an expression into words."""
    if len(source) > LONGEST:
        words = f"the expression has {len(source)} characters"
        raise errors.BadRule(words, hint=f"at most {LONGEST} are read")
    at = 0
    while at < len(source):
        found = _WORD.match(source, at)
        if found is None:
            sign, both = source[at], source[at : at + 2]
            hint = _MEANT.get(both, _MEANT.get(sign, ""))
            raise wrong(at, f"{sign!r} means nothing here", hint)
        word = found[0]
        match found.lastgroup:
            case "number" | "unit":
                yield ExprToken("number", word, at, _number(word, found["unit"] or "", at))
            case "text":
                yield ExprToken("text", word, at, re.sub(r"(?s)\\(.)", r"\1", word[1:-1]))
            case "name":
                yield ExprToken("sign" if word in KEYWORDS else "name", word, at)
            case _ if word.strip():
                yield ExprToken("sign", _SIGNS.get(word, word), at)
            case _:
                pass
        at = found.end()
    yield ExprToken("end", "", at)


def _number(word: str, unit: str, at: int) -> float:
    if unit == "m":
        minutes, mega = f"{word[:-1]}min", f"{word[:-1]}M"
        raise wrong(at, f"`{word}` may be minutes or megabytes", f"write `{minutes}` or `{mega}`")
    digits = word.removesuffix(unit) if unit else word
    value = float(digits)
    if unit in _SPAN:
        value *= units.seconds(f"1{unit}")
    elif unit and _SIZE.fullmatch(unit):
        value *= units.size(f"1{unit}")
    elif unit:
        raise wrong(at, f"`{unit}` is no unit", "sizes are `4G` or `512MiB`, times `90s` or `2h`")
    if not value < 2**1000:
        raise wrong(at, f"`{word[:20]}` is too large")
    # Below 2^53 each whole number is exact.
    return int(value) if value.is_integer() and value < 2**53 else value
