"""Globs on absolute paths, taken apart so that most of the work is done once a directory.

`*`, `?` and `[...]` stay in one component; `**` is a component of its own and stands for any number
of directories, also none (at the end: for everything below); `{name}` captures one or more
characters of a component; `{{` and `}}` are braces; `[*]` is a literal star. As in shells, a name
that begins with a dot is matched only where the glob writes the dot: a component that begins with
`*`, `?`, `{` or `[!` passes it over, and `**` does not enter hidden directories.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from pilotage import errors

_SPECIAL = re.compile(r"[*?\[{}]")


class Token(NamedTuple):
    """A piece of one component."""

    #: `text`, `star`, `any`, `set`, `group`, or `deep` for a component that is `**`.
    kind: str
    #: The literal text, the class of characters as a regular expression, or the group's name.
    value: str = ""


#: The tokens of what stands between two slashes.
Component = tuple[Token, ...]
DEEP: Component = (Token("deep"),)
STAR: Component = (Token("star"),)


class Name(NamedTuple):
    """A matcher of the last component."""

    #: Literal text at the start and at the end.
    prefix: str
    suffix: str
    #: Whether the prefix is all there is.
    exact: bool
    #: Whether prefix, anything, suffix is all there is.
    simple: bool
    #: Whether a name may begin with a dot.
    hidden: bool
    #: The whole of it.
    regex: re.Pattern[str]
    #: The names of its groups.
    groups: tuple[str, ...]


class Glob(NamedTuple):
    """A glob, ready to match."""

    #: As it was written.
    text: str
    #: The directory up to the first component that is not literal.
    prefix: str
    #: The components between the prefix and the last one.
    steps: tuple[Component, ...]
    #: What the directory must be; None means exactly the prefix.
    directory: re.Pattern[str] | None
    #: What the last component must be.
    name: Name
    #: Names of all groups, in order.
    groups: tuple[str, ...]
    #: The last component.
    last: Component

    def match(self, directory: str, name: str) -> dict[str, str] | None:
        """Return the captured groups, or None."""
        outer = self.match_directory(directory)
        if outer is None:
            return None
        inner = self.name.regex.fullmatch(name)
        return None if inner is None else outer | inner.groupdict()

    def match_directory(self, directory: str) -> dict[str, str] | None:
        """Return the groups captured in the directory, or None."""
        if self.directory is None:
            return {} if directory == self.prefix else None
        found = self.directory.fullmatch("" if directory == "/" else directory)
        return None if found is None else found.groupdict()


@lru_cache(maxsize=65536)
def parse(text: str, *, hidden: bool = False) -> Glob:
    """Take a glob apart; with `hidden` wildcards match leading dots too."""
    components = [component(part) for part in _split(text)]
    groups = [token.value for part in components for token in part if token.kind == "group"]
    for group in groups:
        if groups.count(group) > 1:
            raise errors.BadRule(
                f"the glob {text!r} captures {group!r} twice", hint="give each capture its own name"
            )
    if components[-1] == DEEP:
        components.append(STAR)
    *outer, last = components
    literal = 0
    while literal < len(outer) and _is_text(outer[literal]):
        literal += 1
    prefix = "".join(f"/{part[0].value}" for part in outer[:literal])
    steps = tuple(outer[literal:])
    directory = directory_regex(prefix, steps, hidden=hidden)
    return Glob(text, prefix or "/", steps, directory, _name(last, hidden), tuple(groups), last)


def absolute(text: str, base: str) -> str:
    """Put a relative glob below a directory and take out `.` and `..`."""
    if not text:
        raise errors.BadRule("a glob is empty", hint="write `*` for all files of a directory")
    whole = text if text.startswith("/") else f"{escape(base).rstrip('/')}/{text}"
    parts: list[str] = []
    for part in whole.split("/")[1:-1]:
        if part == "..":
            if not parts or _SPECIAL.search(parts[-1]):
                raise errors.BadRule(f"`..` has nothing to undo in the glob {text!r}")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(["", *parts, whole.rpartition("/")[2]])


def escape(path: str) -> str:
    """Write a path as a glob that matches only it."""
    doubled = path.replace("{", "{{").replace("}", "}}")
    return re.sub(r"[*?\[]", r"[\g<0>]", doubled)


def component(part: str) -> Component:
    """Take one component apart."""
    if part == "**":
        return DEEP
    tokens: list[Token] = []
    at = 0
    while at < len(part):
        token, at = _token(part, at)
        if tokens and token.kind == tokens[-1].kind == "text":
            tokens[-1] = Token("text", tokens[-1].value + token.value)
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


def component_regex(part: Component, *, hidden: bool = False) -> str:
    """Write a component (not `**`) as a regular expression."""
    first = part[0]
    dotless = first.kind in ("star", "any", "group") or first.value.startswith("[^")
    guard = r"(?!\.)" if dotless and not hidden and first.kind != "text" else ""
    return guard + "".join(_token_regex(token) for token in part)


def _split(text: str) -> list[str]:
    if not text.startswith("/"):
        raise errors.BadRule(f"the glob {text!r} is not absolute")
    parts = text.split("/")[1:]
    if parts[-1] == "":
        raise errors.BadRule(
            f"the glob {text!r} ends with a slash",
            hint=f"write `{text}*` for the files in it, `{text}**` for all below it",
        )
    for part in parts:
        if part in ("", ".", ".."):
            raise errors.BadRule(f"the glob {text!r} is not normalised: it holds `/{part}`")
        if "**" in part and part != "**":
            raise errors.BadRule(
                f"`**` in the glob {text!r} does not stand alone",
                hint="write `**` between slashes, or `*` for characters of one name",
            )
    # Two `**` in a row mean the same as one, and would make the regular expression ambiguous.
    pairs = zip(parts, ["", *parts], strict=False)
    return [part for part, before in pairs if not part == before == "**"]


def _token(part: str, at: int) -> tuple[Token, int]:
    char = part[at]
    if char == "*":
        return Token("star"), at + 1
    if char == "?":
        return Token("any"), at + 1
    if char == "[":
        return _set(part, at)
    if part[at : at + 2] in ("{{", "}}"):
        return Token("text", char), at + 2
    if char == "{":
        return _group(part, at)
    if char == "}":
        raise errors.BadRule(f"a `}}` in {part!r} closes nothing", hint="a literal brace is `}}`")
    return Token("text", char), at + 1


def _group(part: str, at: int) -> tuple[Token, int]:
    end = part.find("}", at)
    name = part[at + 1 : end]
    if end < 0:
        raise errors.BadRule(f"a `{{` in {part!r} is not closed", hint="a literal brace is `{{`")
    if not name.isidentifier():
        raise errors.BadRule(
            f"{name!r} in {part!r} cannot name a capture",
            hint="write `{scan}` to capture part of a name; a literal brace is `{{`",
        )
    return Token("group", name), end + 1


def _set(part: str, at: int) -> tuple[Token, int]:
    negated = part[at + 1 : at + 2] in ("!", "^")
    start = at + 1 + negated
    end = part.find("]", start + 1)
    if end < 0:
        raise errors.BadRule(f"a `[` in {part!r} is not closed", hint="a literal bracket is `[[]`")
    inner = part[start:end]
    if len(inner) == 1 and not negated:
        return Token("text", inner), end + 1
    return Token("set", f"[{'^/' if negated else ''}{_ranges(inner, part)}]"), end + 1


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


def _token_regex(token: Token) -> str:
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
    return "/" + component_regex(part, hidden=hidden)


def _is_text(part: Component) -> bool:
    return len(part) == 1 and part[0].kind == "text"


def _name(part: Component, hidden: bool) -> Name:  # noqa: FBT001 - private
    prefix = part[0].value if part[0].kind == "text" else ""
    exact = _is_text(part)
    suffix = part[-1].value if part[-1].kind == "text" and not exact else ""
    middle = part[bool(prefix) : len(part) - bool(suffix)]
    groups = tuple(token.value for token in part if token.kind == "group")
    regex = re.compile(component_regex(part, hidden=hidden), re.DOTALL)
    return Name(prefix, suffix, exact, middle == STAR, hidden or bool(prefix), regex, groups)
