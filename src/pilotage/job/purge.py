"""Forget what ended long ago: rows first, directories after, so that a crash leaves only litter."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from pilotage import text

if TYPE_CHECKING:
    from pilotage.store import Db

_AT_ONCE = 1000


def forget(db: Db, before: float) -> list[str]:
    """Forget some jobs that ended before a time; return the directories to remove."""
    found = [row[0] for row in db.rows("job_purgeable", before=before, most=_AT_ONCE)]
    if not found:
        return []
    ids = text.dump(found)
    folders = [text.load_path(row[0]) for row in db.rows("attempt_dirs", ids=ids)]
    for step in (
        "job_spend", "dependency_purge", "output_purge", "journal_purge", "attempt_purge",
        "job_purge",
    ):  # fmt: skip
        db.run(step, ids=ids)
    db.run("event_purge", before=before)
    return folders


def remove(folders: list[str]) -> None:
    """Remove the directories of forgotten attempts."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
