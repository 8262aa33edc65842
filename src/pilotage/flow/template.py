"""Templates of workflows: `{name}` in text, filled when a task is about to be sent.

`{params.x}` or `{x}` is a parameter of the flow; `{item}` is what a task of a fanned-out step is
for, with `{item.key}` and `{index}`; `{STEP.result}` and `{STEP.state}` tell of a step before;
`{flow}` and `{attempt}` are numbers. A text that is one name and nothing else keeps the type of
its value. `{{` and `}}` are braces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from pilotage.base import errors
from pilotage.job.template import apart, write

#: Names that stand for themselves whatever steps and parameters are called.
WORDS = frozenset({"params", "item", "index", "flow", "attempt"})

_NAME = re.compile(r"\w[\w-]*(?:\.[\w-]+)*")


@lru_cache(maxsize=8192)
def pieces(text: str) -> tuple[tuple[str, str], ...]:
    """Take a template apart into pairs of literal text and the name after it."""
    return apart(text, _NAME, errors.BadFlow, "is no name")


def names(value: object) -> Iterator[str]:
    """Yield all names in the templates of a value."""
    if isinstance(value, str):
        if "{" in value or "}" in value:
            yield from (name for _, name in pieces(value) if name)
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from names(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from names(inner)


def fill(value: Any, look: Callable[[str], Any]) -> Any:  # noqa: ANN401 - any JSON value
    """Fill all templates in a value."""
    if isinstance(value, str):
        return _text(value, look) if "{" in value or "}" in value else value
    if isinstance(value, Mapping):
        return {key: fill(inner, look) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [fill(inner, look) for inner in value]
    return value


def line(value: str, look: Callable[[str], Any]) -> str:
    """Fill a template whose value is text in any case."""
    return write(fill(value, look))


def _text(text: str, look: Callable[[str], Any]) -> Any:  # noqa: ANN401 - any JSON value
    found = pieces(text)
    if len(found) == 2 and not found[0][0] and not found[1][0]:
        return look(found[0][1])
    return "".join(literal + (write(look(name)) if name else "") for literal, name in found)
