"""Whether what one rule writes can be what another waits for.

An output is a template; each keyword in it stands for what the rule's own pattern says of it, or
for any text. The result is a list of components like those of a glob, and the question is whether
some path belongs to both. For globs the answer is exact, except that classes of characters are
compared letter by letter in the common alphabets; for regular expressions it is a trial with a few
likely paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from pilotage.event.model import EventKind
from pilotage.job import template
from pilotage.rule import component, exclude, glob, verdict
from pilotage.rule.component import DEEP, Component, GlobToken
from pilotage.rule.model import FilePattern, Rule

_FILES = frozenset(
    {
        EventKind.FILE_CREATED,
        EventKind.FILE_MODIFIED,
        EventKind.FILE_CLOSED,
        EventKind.FILE_MOVED,
        EventKind.FILE_EXISTING,
    }
)
_FOLDERS = frozenset(
    {EventKind.DIR_CREATED, EventKind.DIR_MODIFIED, EventKind.DIR_MOVED, EventKind.DIR_EXISTING}
)
_SAMPLES = ("x", "0", "001", "a_1", "scan_001")
#: A character that no name has: a glob that matches it matches anything there.
_PLACEHOLDER = "\ue000"


def feeds(rule: Rule, output: str, pattern: FilePattern, base: str) -> bool:
    """Return whether an output of a rule can be what a pattern waits for."""
    return any(_matches(path, pattern) for path in _events(rule, output, pattern, base))


def surely_feeds(rule: Rule, output: str, pattern: FilePattern, base: str) -> bool:
    """Return whether it matches for all values of the keywords."""
    return any(
        verdict.match_file(pattern, *_sample(path, _PLACEHOLDER)) is not None
        for path in _events(rule, output, pattern, base)
    )


def _events(
    rule: Rule, output: str, pattern: FilePattern, base: str
) -> Iterator[tuple[Component, ...]]:
    """Yield what happens when an output is written: a file comes, and its directory changes."""
    for path in shapes(rule, output, base):
        if pattern.events & _FILES:
            yield path
        if pattern.events & _FOLDERS and len(path) > 1:
            yield path[:-1]


def shapes(rule: Rule, output: str, base: str) -> list[tuple[Component, ...]]:
    """Return what the path of an output can look like, one for each glob of its rule."""
    globs = rule.pattern.globs if isinstance(rule.pattern, FilePattern) else ()
    found = []
    for written in globs or ("/**",):
        values = _values(rule, written, base)
        text = "".join(
            glob.escape(literal) + (values.get(keyword, "*") if keyword else "")
            for literal, keyword in template.pieces(output)
        )
        if output.startswith(("{message.", "{ended.", "{other}")):
            text = "/**/" + text
        whole = text if text.startswith("/") else f"{glob.escape(base)}/{text}"
        parts = [part for part in whole.split("/") if part not in ("", ".")]
        found.append(tuple(component.parse(part) for part in parts))
    return found


def _values(rule: Rule, written: str, base: str) -> dict[str, str]:
    """Return keywords as globs; an unknown one is a star."""
    folder, _, name = written.rpartition("/")
    if name == "**":
        name, folder = "*", f"{folder}/**"
    stem, _, suffix = name.rpartition(".")
    plain = bool(stem) and not re.search(r"[*?\[\]]", suffix)
    start = glob.escape(base).rstrip("/") + "/"
    known = {
        "path": f"{folder}/{name}",
        "dir": folder or "/",
        "name": name,
        "stem": stem if plain else "*",
        "suffix": f".{suffix}" if plain else "*",
        "rel": f"{folder}/{name}".removeprefix(start),
        "rel_dir": f"{folder}/".removeprefix(start).rstrip("/"),
        "base": glob.escape(base),
    }
    constants = {
        key: glob.escape(template.write(value))
        for key, value in rule.spec.params.items()
        if not isinstance(value, str) or not template.names(value)
    }
    shadowed = {*glob.parse(written).groups, *rule.points[0]}
    return {**known, **constants, **dict.fromkeys(shadowed, "*")}


def _matches(path: tuple[Component, ...], pattern: FilePattern) -> bool:
    for written in pattern.globs:
        parsed = glob.parse(written)
        wanted = (*_literal(parsed.prefix), *parsed.steps, parsed.last)
        if meets(path, wanted) and not _left_out(path, pattern):
            return True
    if not pattern.regex:
        return False
    samples = (_sample(path, filler) for filler in _SAMPLES)
    return any(verdict.match_file(pattern, *sample) is not None for sample in samples)


def _literal(prefix: str) -> Iterator[Component]:
    return ((GlobToken("text", part),) for part in prefix.split("/") if part)


def _left_out(path: tuple[Component, ...], pattern: FilePattern) -> bool:
    return bool(exclude.excluded_by(pattern, *_sample(path, _PLACEHOLDER)))


def _sample(path: tuple[Component, ...], filler: str) -> tuple[str, str]:
    """Fill the wildcards of a path."""
    parts = [
        "".join(token.value if token.kind == "text" else filler for token in part)
        for part in path
        if part != DEEP
    ]
    return "/" + "/".join(parts[:-1]), parts[-1] if parts else filler


@lru_cache(maxsize=65536)
def meets(left: tuple[Component, ...], right: tuple[Component, ...]) -> bool:
    """Return whether a path belongs to both; stars of the right side pass hidden names over."""
    if not left or not right:
        return all(part == DEEP for part in (*left, *right))
    if left[0] == DEEP:
        return meets(left[1:], right) or meets(left, right[1:])
    if right[0] == DEEP:
        hidden = left[0][0].kind == "text" and left[0][0].value.startswith(".")
        return meets(left, right[1:]) or (not hidden and meets(left[1:], right))
    return _components_meet(left[0], right[0]) and meets(left[1:], right[1:])


def _components_meet(left: Component, right: Component) -> bool:
    hidden = left[0].kind == "text" and left[0].value.startswith(".")
    if hidden and component.passes_dots_over(right):
        return False
    return _atoms_meet(tuple(_atoms(left)), tuple(_atoms(right)))


def _atoms(part: Component) -> Iterator[GlobToken]:
    for token in part:
        match token.kind:
            case "text":
                yield from (GlobToken("text", char) for char in token.value)
            case "group":
                yield from (GlobToken("any"), GlobToken("star"))
            case _:
                yield token


def _atoms_meet(left: tuple[GlobToken, ...], right: tuple[GlobToken, ...]) -> bool:
    """Return whether a name belongs to both, by walking both sides at once."""
    seen: set[tuple[int, int]] = set()
    states = {(0, 0)}
    while states:
        at = states.pop()
        if at in seen:
            continue
        seen.add(at)
        first, second = at
        if at == (len(left), len(right)):
            return True
        ours = left[first] if first < len(left) else None
        theirs = right[second] if second < len(right) else None
        if ours == GlobToken("star"):
            states |= {(first + 1, second)} | ({(first, second + 1)} if theirs else set())
        if theirs == GlobToken("star"):
            states |= {(first, second + 1)} | ({(first + 1, second)} if ours else set())
        elif ours and theirs and ours != GlobToken("star") and _share(ours, theirs):
            states.add((first + 1, second + 1))
    return False


@lru_cache(maxsize=4096)
def _share(left: GlobToken, right: GlobToken) -> bool:
    """Return whether one character matches both."""
    if "any" in (left.kind, right.kind):
        return True
    if left.kind == right.kind == "text":
        return left.value == right.value
    letters = [token.value for token in (left, right) if token.kind == "text"]
    sets = [re.compile(token.value) for token in (left, right) if token.kind == "set"]
    letters = letters or [chr(code) for code in range(1, 0x500)]
    return any(all(each.fullmatch(letter) for each in sets) for letter in letters)
