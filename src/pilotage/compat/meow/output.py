"""The folder of each job that ended, in the form in which MEOW leaves it."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pilotage.compat.meow import rule
from pilotage.compat.meow.pattern import KINDS
from pilotage.event import records as events
from pilotage.job import machine, records, template
from pilotage.job.model import Job, State
from pilotage.store import Db

_CURSOR = "meow job_output"
#: What an attempt leaves, and what MEOW calls it.
_FILES = {
    "stdout": "stdout.txt",
    "stderr": "stderr.txt",
    "script": "recipe.sh",
    "recipe.py": "recipe.py",
    "recipe.ipynb": "recipe.ipynb",
    "result.ipynb": "result.ipynb",
}
_TYPES = {kind: name for name, kind in KINDS.items()}
_STATUS = {State.DONE: "done", State.CANCELLED: "skipped"}


def deliver(db: Db, folder: Path) -> None:
    """Write the folders of all jobs that ended since the last time; none is left out or partial."""
    while ends := db.rows("journal_ends", after=int(events.cursor(db, _CURSOR) or 0)):
        for number in dict.fromkeys(row[2] for row in ends):
            job = records.get(db, number)
            if machine.FACTS[job.state].final:
                _write(db, job, folder)
        with db.transaction():
            events.advance(db, _CURSOR, str(ends[-1][0]))


def _write(db: Db, job: Job, folder: Path) -> None:
    part = folder / f".job_{job.id}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for attempt in records.attempts(db, job.id)[-1:]:
        for name, known in _FILES.items():
            with suppress(FileNotFoundError):
                _share(f"{attempt.dir}/{name}", part / known)
    # Text that is not UTF-8, as names of files may be, becomes an escape that JSON knows.
    written = json.dumps(_facts(db, job), indent=2, ensure_ascii=False)
    (part / "job.yml").write_bytes(written.encode("utf-8", "backslashreplace"))
    final = folder / f"job_{job.id}"
    shutil.rmtree(final, ignore_errors=True)
    part.rename(final)


def _share(source: str, target: Path) -> None:
    """Let a file appear elsewhere without taking more room, where that is possible."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)


def _facts(db: Db, job: Job) -> dict[str, Any]:
    carried = rule.facts(job.spec)
    known = template.keywords(job.binding, job.spec.base, job.id)
    told = {
        "id": f"job_{job.id}",
        "event": _event(db, job, carried),
        "job_type": carried.job_type,
        "pattern": carried.pattern,
        "recipe": carried.recipe,
        "rule": carried.rule,
        "status": _STATUS.get(job.state, "failed"),
        "create": _time(job.created),
        "start": _time(job.started),
        "end": _time(job.ended),
        "requirements": carried.requirements,
        "parameters": template.parameters(job.spec, job.binding, known),
        "notification": carried.notification,
    }
    return told | ({"error": job.reason} if job.reason else {})


def _event(db: Db, job: Job, carried: rule.Facts) -> dict[str, Any]:
    told = {
        "event_path": job.binding.path,
        "event_rule": carried.rule,
        "file_hash": job.binding.sha256 or None,
        "monitor_base": carried.monitor_base,
    }
    row = db.row("event_get", id=job.event)
    if row is None:
        return told
    event = events.read(row).event
    return {**told, "event_type": _TYPES.get(event.kind, event.kind), "event_time": event.time}


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()
