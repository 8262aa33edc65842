"""Templates: `{keyword}` in text, filled with what is known of a job.

A keyword is a name, or names joined by dots (`{match.scan}`, `{message.sample.id}`); `{{` and `}}`
are braces. A text that is one keyword and nothing else keeps the type of its value.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pilotage.base import errors
from pilotage.base import text as texts
from pilotage.base.names import closest
from pilotage.job.model import Binding, JobSpec, Workflow

#: Every keyword that does not depend on the rule, and what it stands for.
KEYWORDS = {
    "path": "the file that fired the rule",
    "name": "its name without the directory",
    "stem": "its name without the last suffix",
    "suffix": "the last suffix of its name, with the dot",
    "dir": "its directory",
    "rel": "its path below the base",
    "rel_dir": "its directory below the base",
    "base": "the directory of the project",
    "other": "the other end of a move",
    "paths": "all files of a gathered set",
    "job": "the number of the job",
    "match": "everything that the pattern captured; `match.NAME` is one of it",
    "message": "the fields of a message; `message.FIELD` is one of them",
    "ended": "the facts of an ended job; `ended.state` is one of them",
    "tick": "the moment for which a timer fired, in RFC 3339",
}

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|([{}])")
_KEYWORD = re.compile(r"[^\W\d]\w*(?:\.[\w-]+)*")


@lru_cache(maxsize=8192)
def pieces(text: str) -> tuple[tuple[str, str], ...]:
    """Parse a template into pairs of literal text and the keyword after it."""
    return apart(text, _KEYWORD, errors.BadRule, "is not a keyword")


def apart(
    text: str, name: re.Pattern[str], wrong: type[errors.PilotageError], no_name: str
) -> tuple[tuple[str, str], ...]:
    """Take a template apart whose names look so; what is `wrong` with one that does not is said."""
    found: list[tuple[str, str]] = []
    literal, at = "", 0
    for piece in _PIECE.finditer(text):
        literal += text[at : piece.start()]
        at = piece.end()
        if piece[2]:
            raise wrong(
                f"a lone `{piece[2]}` in {_short(text)}",
                hint=f"a literal brace is `{piece[2] * 2}`",
            )
        if piece[1] is None:
            literal += piece[0][0]
        elif not name.fullmatch(piece[1]):
            raise wrong(
                f"`{piece[0]}` in {_short(text)} {no_name}",
                hint="literal braces are written `{{` and `}}`",
            )
        else:
            found.append((literal, piece[1]))
            literal = ""
    return (*found, (literal + text[at:], ""))


def names(text: str) -> frozenset[str]:
    """Return the keywords of a template."""
    return frozenset(keyword for _, keyword in pieces(text) if keyword)


def check(text: str, known: Iterable[str]) -> None:
    """Complain of a keyword that is neither known nor a field of something known.

    A known name that ends with `.*` takes any field.
    """
    allowed = set(known)
    for keyword in sorted(names(text)):
        head = keyword.partition(".")[0]
        if keyword not in allowed and f"{head}.*" not in allowed:
            raise _unknown(keyword, (name.removesuffix(".*") for name in allowed))


def render(text: str, values: Mapping[str, Any]) -> str:
    """Fill a template."""
    return "".join(
        literal + (write(look_up(keyword, values)) if keyword else "")
        for literal, keyword in pieces(text)
    )


def fill(value: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
    """Fill all templates in a value; a lone keyword keeps its type."""
    if isinstance(value, str):
        found = pieces(value)
        if len(found) == 2 and found[0][0] == "" and found[1][0] == "":
            return look_up(found[0][1], values)
        return render(value, values)
    if isinstance(value, dict):
        return {key: fill(inner, values) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [fill(inner, values) for inner in value]
    return value


def argv(parts: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """Fill the arguments of a program; a lone keyword that is a list becomes many."""
    filled: list[str] = []
    for part in parts:
        value = fill(part, values)
        if isinstance(value, (list, tuple)):
            filled += [write(each) for each in value]
        else:
            filled.append(write(value))
    return filled


def place(text: str, values: Mapping[str, Any], base: str) -> str:
    """Fill a template of a path; what is relative starts from the base."""
    return posixpath.normpath(posixpath.join(base, render(text, values)))


def write(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Write a value as text: text as it is, the rest as JSON, nothing for None."""
    if isinstance(value, str):
        return value
    return "" if value is None else texts.dump(value)


def look_up(keyword: str, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
    """Return what a keyword stands for; dots lead into fields and items."""
    if keyword in values:
        return values[keyword]
    head, *fields = keyword.split(".")
    found: Any = values
    for field in (head, *fields):
        if isinstance(found, Mapping) and field in found:
            found = found[field]
        elif isinstance(found, (list, tuple)) and field.isdecimal() and int(field) < len(found):
            found = found[int(field)]
        else:
            raise _unknown(keyword, _all_names(values))
    return found


def keywords(binding: Binding, base: str, job: int | None = None) -> dict[str, Any]:
    """Return what each keyword stands for; what a rule captures or sweeps may shadow the rest."""
    folder, _, name = binding.path.rpartition("/")
    stem, suffix = posixpath.splitext(name)
    relative = _below(binding.path, base)
    known: dict[str, Any] = {
        "path": binding.path,
        "name": name,
        "stem": stem,
        "suffix": suffix,
        "dir": folder or ("/" if binding.path else ""),
        "rel": relative,
        "rel_dir": posixpath.dirname(relative),
        "base": base,
        "other": binding.other,
        "paths": binding.paths or ((binding.path,) if binding.path else ()),
        "match": binding.match,
        "message": binding.data,
        "ended": binding.data,
        "tick": binding.data.get("tick", ""),
    }
    if job is not None:
        known["job"] = job
    return {**known, **binding.match, **binding.sweep}


def parameters(spec: JobSpec, binding: Binding, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a recipe receives: captured groups, then parameters, then the sweep.

    A workflow receives those of them that are parameters of its own.
    """
    found = {**binding.match, **fill(spec.params, known), **binding.sweep}
    if not isinstance(spec.recipe, Workflow):
        return found
    return {name: found[name] for name in spec.recipe.flow.get("params", ()) if name in found}


def _below(path: str, base: str) -> str:
    start = base if base.endswith("/") else base + "/"
    return path.removeprefix(start)


def _all_names(values: Mapping[str, Any]) -> list[str]:
    fields = [
        f"{name}.{field}"
        for name, value in values.items()
        if isinstance(value, Mapping)
        for field in value
    ]
    return [*values, *fields]


def _unknown(keyword: str, known: Iterable[str]) -> errors.BadRule:
    return errors.BadRule(f"there is no keyword `{{{keyword}}}` here", hint=closest(keyword, known))


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
