"""Forget flows that ended long ago: their data is removed before, and their keys are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotage.base import text

if TYPE_CHECKING:
    from pilotage.store import Db

#: Flows of one transaction: one may have very many tasks.
_AT_ONCE = 10


def forget(db: Db, before: float) -> list[str] | None:
    """Forget some flows that ended before a time, with those within them.

    Nothing is returned when no such flow is left, else the files to remove: there are none.
    """
    found = [row[0] for row in db.rows("flow_forgettable", before=before, most=_AT_ONCE)]
    if not found:
        return None
    db.run("flow_keys_keep", ids=text.dump(found))
    ids = text.dump([row[0] for row in db.rows("flow_inside", ids=text.dump(found))])
    for query in (
        "flow_files_drop", "flow_resends_drop", "flow_attempts_drop", "flow_tasks_drop",
        "flow_edges_drop", "flow_specs_drop", "flow_steps_drop", "flow_texts_drop",
        "flow_journal_drop", "flow_outbox_drop", "flow_drop",
    ):  # fmt: skip
        db.run(query, ids=ids)
    return []
