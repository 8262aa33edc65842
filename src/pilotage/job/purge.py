"""Delete old ended jobs: rows first, files after, so that a crash leaves only unused files."""

from __future__ import annotations

import shutil
from pathlib import Path

from pilotage.base import text
from pilotage.store import Db

_AT_ONCE = 1000


def forget(db: Db, before: float) -> list[str] | None:
    """Forget some jobs that ended before a time; return the directories to remove.

    Nothing is returned when no such job is left.
    """
    found = [row[0] for row in db.rows("job_purgeable", before=before, most=_AT_ONCE)]
    if not found:
        return None
    return drop(db, found)


def drop(db: Db, jobs: list[int]) -> list[str]:
    """Delete ended jobs; return the directories to remove."""
    ids = text.dump(jobs)
    folders = [text.load_path(row[0]) for row in db.rows("attempt_dirs", ids=ids)]
    for step in (
        "job_spend", "dependency_purge", "output_purge", "journal_purge", "attempt_purge",
        "result_purge", "submitted_purge", "job_purge",
    ):  # fmt: skip
        db.run(step, ids=ids)
    db.run("submission_purge")
    return folders


def remove(paths: list[str]) -> None:
    """Remove the directories of forgotten attempts and the files of forgotten messages."""
    for path in map(Path, paths):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
