"""What the names in templates and conditions stand for; read only when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pilotage.base import errors, text
from pilotage.base.names import closest

if TYPE_CHECKING:
    from pilotage.flow.definition import Head
    from pilotage.store import Db

#: No list is so long that a place in it has more digits.
_DIGITS = 9


class Values:
    """Looks names up for one step or task."""

    def __init__(
        self, db: Db, head: Head, *, item: object = None, index: int = 0, attempt: int = 0
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
        """Return what a name stands for, or complain that it stands for nothing."""
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
    """Read a place in a list; what is none is beyond every list."""
    return int(field) if field.isdecimal() and len(field) <= _DIGITS else 10**_DIGITS


def _unknown(name: str, known: Any) -> errors.BadFlow:  # noqa: ANN401 - any names
    return errors.BadFlow(f"`{{{name[:80]}}}` stands for nothing", hint=closest(name[:80], known))
