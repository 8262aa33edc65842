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

from pilotage.base import errors
from pilotage.rule import component
from pilotage.rule.component import DEEP, STAR, Component

_SPECIAL = re.compile(r"[*?\[{}]")


class Name(NamedTuple):
    """A matcher of the last component."""

    #: Literal text at the start and at the end.
    prefix: str
    suffix: str
    #: Whether the prefix is all there is.
    exact: bool
    #: Whether prefix, anything, suffix is all there is.
    simple: bool
    #: The group, if prefix, one group, suffix is all there is.
    single: str
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
    """Parse a glob; with `hidden` wildcards match leading dots too."""
    components = [component.parse(part) for part in _split(text)]
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
    while literal < len(outer) and component.is_text(outer[literal]):
        literal += 1
    prefix = "".join(f"/{part[0].value}" for part in outer[:literal])
    steps = tuple(outer[literal:])
    directory = component.directory_regex(prefix, steps, hidden=hidden)
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


def _name(part: Component, hidden: bool) -> Name:  # noqa: FBT001 - private
    prefix = part[0].value if part[0].kind == "text" else ""
    exact = component.is_text(part)
    suffix = part[-1].value if part[-1].kind == "text" and not exact else ""
    middle = part[bool(prefix) : len(part) - bool(suffix)]
    groups = tuple(token.value for token in part if token.kind == "group")
    regex = re.compile(component.regex(part, hidden=hidden), re.DOTALL)
    single = middle[0].value if len(middle) == 1 and middle[0].kind == "group" else ""
    return Name(
        prefix, suffix, exact, middle == STAR, single, hidden or bool(prefix), regex, groups
    )
