"""Conditions of steps: expressions over parameters and over results and states of steps.

Names stand bare, such as `generate.result.count > 1000`, or in braces, where a name has a dash or
begins with a digit: `{1-fit.state} == 'done'`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from pilotage.base import errors
from pilotage.flow import template
from pilotage.match.expr import Expr, parse


@lru_cache(maxsize=1024)
def read(condition: str) -> tuple[Expr, dict[str, str]]:
    """Read a condition; names in braces are given others that an expression can have."""
    try:
        condition.encode()
    except UnicodeEncodeError:
        raise errors.BadFlow("the condition has half a character in it") from None
    text = ""
    given: dict[str, str] = {}
    for literal, name in template.pieces(condition):
        text += literal
        if name:
            short = f"braced_{len(given)}"
            given[short] = name
            text += short
    try:
        return parse(text), given
    except errors.BadFlow:
        raise
    except errors.BadRule as error:
        raise errors.BadFlow(error.message, hint=error.hint) from None


def names(condition: str) -> frozenset[str]:
    """Return the names that a condition asks for."""
    expression, given = read(condition)
    return frozenset(given.get(name, name) for name in expression.names)


def holds(condition: str, look: Callable[[str], Any]) -> bool:
    """Say whether a condition is true."""
    expression, given = read(condition)
    values = {name: look(given.get(name, name)) for name in expression.names}
    found = expression.evaluate(values, {})
    if found is not None and not isinstance(found, bool):
        message = f"`{condition}` is {str(found)[:40]!r}, neither true nor false"
        raise errors.BadFlow(message, hint="compare it with something, such as `x > 0`")
    return found is True
