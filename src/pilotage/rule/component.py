"""One component of a glob, between two slashes, as tokens."""

from __future__ import annotations

import re
from typing import NamedTuple

from pilotage.base import errors


class GlobToken(NamedTuple):
    """A piece of one component."""

    #: `text`, `star`, `any`, `set`, `group`, or `deep` for a component that is `**`.
    kind: str
    #: The literal text, the class of characters as a regular expression, or the group's name.
    value: str = ""


#: The tokens of what stands between two slashes.
Component = tuple[GlobToken, ...]
DEEP: Component = (GlobToken("deep"),)
STAR: Component = (GlobToken("star"),)


def parse(part: str) -> Component:
    """Parse one component."""
    if part == "**":
        return DEEP
    tokens: list[GlobToken] = []
    at = 0
    while at < len(part):
        token, at = _token(part, at)
        if tokens and token.kind == tokens[-1].kind == "text":
            tokens[-1] = GlobToken("text", tokens[-1].value + token.value)
        elif not (tokens and token.kind == tokens[-1].kind == "star"):
            tokens.append(token)
    return tuple(tokens)


def directory_regex(
    prefix: str, steps: tuple[Component, ...], *, hidden: bool = False
) -> re.Pattern[str] | None:
    """Compile what a directory must be (`""` is the root); None means exactly the prefix."""
    if not steps:
        return None
    between = "".join(_step_regex(part, hidden=hidden) for part in steps)
    return re.compile(re.escape(prefix.rstrip("/")) + between, re.DOTALL)


def regex(part: Component, *, hidden: bool = False) -> str:
    """Write a component (not `**`) as a regular expression."""
    guard = r"(?!\.)" if not hidden and passes_dots_over(part) else ""
    return guard + "".join(_token_regex(token) for token in part)


def passes_dots_over(part: Component) -> bool:
    """Return whether a component begins with a wildcard, which no leading dot matches."""
    first = part[0]
    return first.kind in ("star", "any", "group") or (
        first.kind == "set" and first.value.startswith("[^")
    )


def _token(part: str, at: int) -> tuple[GlobToken, int]:
    char = part[at]
    if char == "*":
        return GlobToken("star"), at + 1
    if char == "?":
        return GlobToken("any"), at + 1
    if char == "[":
        return _set(part, at)
    if part[at : at + 2] in ("{{", "}}"):
        return GlobToken("text", char), at + 2
    if char == "{":
        return _group(part, at)
    if char == "}":
        raise errors.BadRule(f"a `}}` in {part!r} closes nothing", hint="a literal brace is `}}`")
    return GlobToken("text", char), at + 1


def _group(part: str, at: int) -> tuple[GlobToken, int]:
    end = part.find("}", at)
    name = part[at + 1 : end]
    if end < 0:
        raise errors.BadRule(f"a `{{` in {part!r} is not closed", hint="a literal brace is `{{`")
    if not name.isidentifier():
        raise errors.BadRule(
            f"{name!r} in {part!r} cannot name a capture",
            hint="write `{scan}` to capture part of a name; a literal brace is `{{`",
        )
    return GlobToken("group", name), end + 1


def _set(part: str, at: int) -> tuple[GlobToken, int]:
    negated = part[at + 1 : at + 2] in ("!", "^")
    start = at + 1 + negated
    end = part.find("]", start + 1)
    if end < 0:
        raise errors.BadRule(f"a `[` in {part!r} is not closed", hint="a literal bracket is `[[]`")
    inner = part[start:end]
    if len(inner) == 1 and not negated:
        return GlobToken("text", inner), end + 1
    return GlobToken("set", f"[{'^/' if negated else ''}{_ranges(inner, part)}]"), end + 1


def _ranges(inner: str, part: str) -> str:
    pieces, at = [], 0
    while at < len(inner):
        low, high = inner[at], inner[at + 2 : at + 3]
        if inner[at + 1 : at + 2] == "-" and high:
            if low > high:
                raise errors.BadRule(f"the range {low}-{high} in {part!r} is upside down")
            pieces.append(f"{re.escape(low)}-{re.escape(high)}")
            at += 3
        else:
            pieces.append(_escape_in_set(low))
            at += 1
    return "".join(pieces)


def _escape_in_set(char: str) -> str:
    return "\\" + char if char in r"\]^-[&~|" else char


def _token_regex(token: GlobToken) -> str:
    match token.kind:
        case "text":
            return re.escape(token.value)
        case "star":
            return "[^/]*"
        case "any":
            return "[^/]"
        case "group":
            return f"(?P<{token.value}>[^/]+)"
        case _:
            return "(?!/)" + token.value


def _step_regex(part: Component, *, hidden: bool) -> str:
    if part == DEEP:
        return "(?:/[^/]+)*" if hidden else r"(?:/(?!\.)[^/]+)*"
    return "/" + regex(part, hidden=hidden)


def is_text(part: Component) -> bool:
    """Return whether a component is literal."""
    return len(part) == 1 and part[0].kind == "text"
