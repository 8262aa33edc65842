"""Templates and conditions of workflows, and the values of the names in them.

`{params.x}` or `{x}` is a parameter of the flow; `{item}` is the value of a task of a fanned-out
step, with `{item.key}` and `{index}`; `{STEP.result}` and `{STEP.state}` belong to an earlier step;
`{flow}` and `{attempt}` are numbers. A text that is one name and nothing else keeps the type of
its value. `{{` and `}}` are braces. Conditions have bare names, such as
`generate.result.count > 1000`, or names in braces, for those with a dash or a digit first:
`{1-fit.state} == 'done'`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from pilotage.base import errors, text
from pilotage.base.names import closest
from pilotage.flow.records import FlowHead
from pilotage.job.template import apart, write
from pilotage.match.expr import Expr, parse
from pilotage.store import Db

#: Reserved names, which no step and no parameter can have.
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
    """Fill a template whose value is always text."""
    return write(fill(value, look))


def _text(text: str, look: Callable[[str], Any]) -> Any:  # noqa: ANN401 - any JSON value
    found = pieces(text)
    if len(found) == 2 and not found[0][0] and not found[1][0]:
        return look(found[0][1])
    return "".join(literal + (write(look(name)) if name else "") for literal, name in found)


@lru_cache(maxsize=1024)
def parse_condition(condition: str) -> tuple[Expr, dict[str, str]]:
    """Read a condition; names in braces are given others that an expression can have."""
    try:
        condition.encode()
    except UnicodeEncodeError:
        raise errors.BadFlow("the condition has an incomplete character") from None
    text = ""
    given: dict[str, str] = {}
    for literal, name in pieces(condition):
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


def condition_names(condition: str) -> frozenset[str]:
    """Return the names that a condition asks for."""
    expression, given = parse_condition(condition)
    return frozenset(given.get(name, name) for name in expression.names)


def holds(condition: str, look: Callable[[str], Any]) -> bool:
    """Return whether a condition is true."""
    expression, given = parse_condition(condition)
    values = {name: look(given.get(name, name)) for name in expression.names}
    found = expression.evaluate(values, {})
    if found is not None and not isinstance(found, bool):
        message = f"`{condition}` is {str(found)[:40]!r}, neither true nor false"
        raise errors.BadFlow(message, hint="compare it with something, such as `x > 0`")
    return found is True


#: The most digits of an index.
_DIGITS = 9


class Values:
    """Looks names up for one step or task."""

    def __init__(
        self, db: Db, head: FlowHead, *, item: object = None, index: int = 0, attempt: int = 0
    ) -> None:
        """Take what is known already; results of steps are read at first use."""
        self._db = db
        self._head = head
        self._plain: dict[str, Any] = {
            "params": head.flow.params, "item": item, "index": index, "flow": head.id,
            "attempt": attempt,
        }  # fmt: skip
        self._steps: dict[str, Any] = {}

    def look(self, name: str) -> Any:  # noqa: ANN401 - any JSON value
        """Return the value of a name, or raise `BadFlow`."""
        first, *fields = name.split(".")
        if first in self._plain:
            return _within(self._plain[first], fields, name)
        if first in self._head.flow.params and fields[:1] not in (["result"], ["state"]):
            return _within(self._head.flow.params[first], fields, name)
        if fields and fields[0] in ("result", "state"):
            return _within(self._step(first, fields[0], name), fields[1:], name)
        raise _unknown(name, self._plain.keys() | self._head.flow.params.keys())

    def _step(self, step: str, what: str, name: str) -> Any:  # noqa: ANN401 - any JSON value
        known = f"{step}.{what}"
        if known not in self._steps:
            facts = self._db.row("flow_step_facts", flow=self._head.id, step=step)
            if facts is None:
                raise _unknown(name, self._plain.keys() | self._head.flow.params.keys())
            self._steps[known] = (
                facts[2] if what == "state" else self._result(step, facts[5], many=bool(facts[1]))
            )
        return self._steps[known]

    def _result(self, step: str, total: int, *, many: bool) -> Any:  # noqa: ANN401 - any JSON value
        rows = self._db.rows("flow_task_results", flow=self._head.id, step=step, total=total)
        found = [text.load(result) if result else None for _, _, result in rows]
        return found if many else (found[0] if found else None)


def _within(value: Any, fields: list[str], name: str) -> Any:  # noqa: ANN401 - any JSON value
    found = value
    for field in fields:
        if isinstance(found, Mapping) and field in found:
            found = found[field]
        elif isinstance(found, list | tuple) and (at := _place(field)) < len(found):
            found = found[at]
        else:
            known = found.keys() if isinstance(found, Mapping) else ()
            raise _unknown(name, known)
    return found


def _place(field: str) -> int:
    """Return an index of a list; beyond every list if it is none."""
    return int(field) if field.isdecimal() and len(field) <= _DIGITS else 10**_DIGITS


def _unknown(name: str, known: Any) -> errors.BadFlow:  # noqa: ANN401 - any names
    return errors.BadFlow(f"`{{{name[:80]}}}` stands for nothing", hint=closest(name[:80], known))
