"""The story of a flow, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pilotage.store import Db


def note(
    db: Db, now: float, flow: int, state: str, words: str = "", *, step: str = "", task: int = 0,
    number: int = 0,
) -> None:  # fmt: skip
    """Write a line: of a flow, of one of its steps, of a task or of an attempt."""
    db.run(
        "flow_journal_add", now=now, flow=flow, step=step, task=task, number=number, state=state,
        words=words,
    )  # fmt: skip
