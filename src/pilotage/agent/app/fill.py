"""Templates of arguments, filled with parameters.

Each token of a template is one argument, whatever its parameters contain. No quoting is needed,
since no shell splits it later.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from pilotage.agent.app.model import Application, Parameter
from pilotage.base import errors
from pilotage.bus.strict import BAD
from pilotage.job import template

#: Words that a template may have beside parameters, and their meaning.
KNOWN = {
    "job": "the number of the job at this site",
    "nodes": "its nodes",
    "tasks": "its tasks on each node",
    "ranks": "its tasks on all nodes",
    "cpus": "the cores of each task",
    "config": "the name of its config file, below its folder",
}
#: Stands for all words of a config.
STAR = "{*}"

#: Text of a parameter; none if it is absent or off.
Filled = Mapping[str, str | None]

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?([0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?")
_SWITCH = {"true": True, "false": False, "on": True, "off": False, "yes": True, "no": False}


def values(
    app: Application, given: Mapping[str, object]
) -> tuple[dict[str, str | None], list[str]]:
    """Check all parameters; return their texts, and a sentence for each problem."""
    found: dict[str, str | None] = {}
    reasons: list[str] = []
    for name in given:
        if name not in app.parameter:
            known = ", ".join(app.parameter) or "none"
            reasons.append(f"there is no parameter {_shown(name)}; there are: {known}")
    for name, one in app.parameter.items():
        raw = given.get(name, one.default)
        if raw is None:
            found[name] = None
            if one.required and one.kind != "flag":
                reasons.append(f"the parameter `{name}` is missing")
            continue
        found[name], reason = value(name, one, raw)
        if reason:
            reasons.append(reason)
    return found, reasons


def value(name: str, one: Parameter, raw: object) -> tuple[str | None, str]:
    """Check one parameter; return its text, or why it is invalid."""
    if one.kind == "flag":
        return _flag(name, one, raw)
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        return None, f"the parameter `{name}` is not {_kind(one)}"
    if one.kind in ("integer", "number"):
        return _number(name, one, raw)
    if not isinstance(raw, str):
        raw = str(raw)
    reason = _text(name, one, raw)
    if reason:
        return None, reason
    # A path is never taken for an option, whatever the file is called.
    return (f"./{raw}" if one.kind == "path" else raw), ""


def argv(
    tokens: Sequence[str | tuple[str, ...]], filled: Filled, words: Sequence[str] = ()
) -> list[str]:
    """Fill a template; leave out tokens and groups with an absent parameter."""
    made: list[str] = []
    for token in tokens:
        if token == STAR:
            made += words
            continue
        group = (token,) if isinstance(token, str) else token
        parts = [_token(one, filled) for one in group]
        if None not in parts:
            made += [part for part in parts if part is not None]
    return made


def _token(token: str, filled: Filled) -> str | None:
    made = ""
    for literal, name in template.pieces(token):
        text = filled.get(name) if name else ""
        if text is None:
            return None
        made += literal + text
    return made


def _flag(name: str, one: Parameter, raw: object) -> tuple[str | None, str]:
    on = _SWITCH.get(raw.lower()) if isinstance(raw, str) else raw
    if not isinstance(on, bool):
        return None, f"the parameter `{name}` is neither true nor false"
    return (one.flag if on else None), ""


def _number(name: str, one: Parameter, raw: str | float) -> tuple[str | None, str]:
    try:
        number = _read(one, raw)
    except ValueError:
        return None, f"the parameter `{name}` is not {_kind(one)}"
    if not one.minimum <= number <= one.maximum:
        message = f"the parameter `{name}` is {number}, not from {one.minimum} to {one.maximum}"
        return None, message
    return str(number), ""


def _read(one: Parameter, raw: str | float) -> int | float:
    """Read a number; refuse fractions for integers, and values that are not finite."""
    if isinstance(raw, str):
        if not (_WHOLE if one.kind == "integer" else _NUMBER).fullmatch(raw):
            raise ValueError(raw)
        raw = int(raw) if _WHOLE.fullmatch(raw) else float(raw)
    if one.kind == "integer" and not isinstance(raw, int):
        raise ValueError(raw)
    if isinstance(raw, float) and not math.isfinite(raw):
        raise ValueError(raw)
    return raw


def _text(name: str, one: Parameter, raw: str) -> str:
    """Return the problem of a text; empty if it is valid."""
    if bad := BAD.search(raw):
        return f"the parameter `{name}` holds the character U+{ord(bad[0]):04X}"
    if len(raw) > one.longest:
        return f"the parameter `{name}` has {len(raw)} characters; the limit is {one.longest}"
    if one.kind == "choice" and raw not in one.choices:
        return f"the parameter `{name}` is none of {', '.join(one.choices)}"
    if one.kind == "path" and (reason := outside(raw)):
        return f"the parameter `{name}` is not a path below the job's folder: {reason}"
    if one.pattern and not _regex(one.pattern).fullmatch(raw):
        return f"the parameter `{name}` does not match `{one.pattern}`"
    if raw.startswith("-") and one.kind == "text" and not one.dash:
        return f"the parameter `{name}` begins with `-`, which it may not"
    return ""


def outside(path: str) -> str:
    """Return why a path is not below the folder that it starts from; none if it is."""
    if not path:
        return "it is empty"
    if BAD.search(path):
        return "it has control characters"
    if path.startswith(("/", "~")):
        return "it is an absolute path"
    if "\\" in path:
        return "it has a `\\`"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "it has `.`, `..` or nothing between slashes"
    return ""


@lru_cache(maxsize=1024)
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _kind(one: Parameter) -> str:
    return {"integer": "a whole number", "number": "a number"}.get(one.kind, "text")


def _shown(name: str) -> str:
    return f"`{ascii(name[:80])[1:-1]}`"


def require(app: Application, given: Mapping[str, object]) -> dict[str, str | None]:
    """Return the texts of all parameters, or raise `Denied` with all problems."""
    found, reasons = values(app, given)
    if reasons:
        raise errors.Denied("; ".join(reasons), hint="`pilotage app show NAME` lists parameters")
    return found
