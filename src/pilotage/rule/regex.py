"""Regular expressions on paths: compile them safely, and find the directories of their matches."""

from __future__ import annotations

import re
import warnings
from functools import lru_cache

from pilotage.base import errors

_PLAIN = re.compile(r"[^\\.^$*+?{}\[\]|()]")
_ESCAPED = re.compile(r"\\[^0-9A-Za-z]", re.DOTALL)


@lru_cache(maxsize=4096)
def compile_regex(text: str) -> re.Pattern[str]:
    """Compile a regular expression, or say why it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise errors.BadRule(
            f"{text!r} is not a regular expression: {error}",
            hint="in TOML write it in single quotes, so that backslashes stay",
        ) from None


def relative(directory: str, name: str, base: str) -> str:
    """Return the path of a file below a base directory; above it, the absolute path."""
    path = f"{directory}/{name}" if directory != "/" else f"/{name}"
    start = base if base.endswith("/") else base + "/"
    return path.removeprefix(start)


def literal_directory(text: str, base: str) -> str:
    """Return a directory that holds whatever matches: the base and the literal start."""
    folder = _literal_start(text).rpartition("/")[0]
    parts = [part for part in folder.split("/") if part]
    if any(part in (".", "..") for part in parts) or folder.startswith("/"):
        parts = []
    return "/".join([base.rstrip("/"), *parts]) or "/"


def _literal_start(text: str) -> str:
    if _has_bar_outside(text):
        return ""
    literal: list[str] = []
    at = 0
    while at < len(text):
        if _PLAIN.match(text, at):
            literal.append(text[at])
            at += 1
        elif _ESCAPED.match(text, at):
            literal.append(text[at + 1])
            at += 2
        else:
            # A quantifier takes the last character away again.
            if text[at] in "*+?{":
                literal = literal[:-1]
            break
    return "".join(literal)


def _has_bar_outside(text: str) -> bool:
    """Return whether a `|` may stand outside of parentheses; in doubt yes."""
    bare = re.sub(r"\\.", "", text, flags=re.DOTALL)
    if "|" not in bare:
        return False
    depth = 0
    for char in bare:
        if char == "[":
            return True
        depth += (char == "(") - (char == ")")
        if char == "|" and depth == 0:
            return True
    return False
