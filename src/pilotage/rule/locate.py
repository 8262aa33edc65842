"""Where in the source of a TOML book a key stands; `tomllib` does not tell."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence

_Path = tuple[str, ...]

_WORD = re.compile(
    r'"""(?:\\.|[^\\])*?"""+'  # multi-line text
    r"|'''.*?'''+"
    r'|"(?:\\.|[^"\\\n])*"'  # text
    r"|'[^'\n]*'"
    r"|\#[^\n]*"  # comment
    r"|[\[\]{}=.,\n]"
    r"|[A-Za-z0-9_+:-]+"
    r"|.",
    re.DOTALL,
)


def line_of(source: str, path: Sequence[str]) -> int | None:
    """Return the line of a key, or else of the nearest thing that holds it."""
    whole, begun = _index(source)
    wanted = tuple(path)
    if wanted in begun:
        return begun[wanted]
    holders = (whole.get(wanted[:length]) for length in range(len(wanted) - 1, 0, -1))
    return next((line for line in holders if line is not None), None)


@functools.lru_cache(maxsize=8)
def _index(source: str) -> tuple[dict[_Path, int], dict[_Path, int]]:
    """Return the lines of all keys, and those where anything that begins with a path begins."""
    whole: dict[_Path, int] = {}
    begun: dict[_Path, int] = {}
    for found, line in _keys(source):
        whole.setdefault(found, line)
        for length in range(1, len(found) + 1):
            begun.setdefault(found[:length], line)
    return whole, begun


def _keys(source: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the path and line of each table header and each key at the start of a line."""
    table: tuple[str, ...] = ()
    for line, words in _statements(source):
        if words[0] == "[":
            table = _dotted(words, "]")
            yield table, line
        elif "=" in words:
            yield table + _dotted(words, "="), line


def _statements(source: str) -> Iterator[tuple[int, list[str]]]:
    """Yield what stands between line ends that are not inside of a value."""
    line, depth = 1, 0
    start = 1
    words: list[str] = []
    for word in _words(source):
        if word == "\n" and depth <= 0:
            if words:
                yield start, words
            words, depth = [], 0
        elif word.strip() and not word.startswith("#"):
            if not words:
                start = line
            words.append(word)
            depth += (word in "[{") - (word in "]}")
        line += word.count("\n")
    if words:
        yield start, words


def _words(source: str) -> Iterator[str]:
    for found in _WORD.finditer(source):
        yield found[0]


def _dotted(words: list[str], end: str) -> tuple[str, ...]:
    stop = words.index(end) if end in words else len(words)
    return tuple(_unquote(word) for word in words[:stop] if word not in "[.")


def _unquote(word: str) -> str:
    return word[1:-1] if word[:1] in ("'", '"') and len(word) >= 2 else word
