"""After a restart: what ran when an earlier process died is adopted, heard of, or counted lost."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from pilotage.base import errors, text
from pilotage.job import records
from pilotage.run import launch, starter
from pilotage.run.model import Ending, Why
from pilotage.run.tenant import Tenant
from pilotage.store import Db

_log = logging.getLogger("pilotage.batch")


def tenants(db: Db, place: launch.Place) -> list[Tenant]:
    """Read the jobs that ran when the last process ended."""
    found = []
    for job, attempt, folder, lock, _, number, binding, _, _, rule, _ in db.rows("job_running"):
        if not lock.startswith("/"):
            continue
        spec = records.read_spec(db.value("spec_body", id=number))
        tenant = Tenant(job, attempt, number, spec, rule, text.load_path(folder), adopted=lock)
        one = records.read_binding(binding)
        try:
            prepared = launch.prepare(
                place, tenant.spec, one, job=job, attempt=attempt, folder=tenant.dir
            )
            tenant.outputs = prepared.outputs
        except (errors.PilotageError, OSError) as error:
            _log.warning("job %d: its outputs cannot be named any more: %s", job, error)
        found.append(tenant)
    return found


def endings(adopted: Iterable[Tenant]) -> list[Ending]:
    """Look how adopted jobs ended; one whose starter died without evidence is lost."""
    found, lost = [], []
    held = list(adopted)
    # Whether a starter lives must be known before its evidence is looked for: it writes first.
    dead = {lock for lock in {one.adopted for one in held} if not starter.alive(Path(lock))}
    for tenant in held:
        if (ending := starter.evidence(tenant.dir)) and ending.key == tenant.key:
            found.append(ending)
        elif tenant.adopted in dead:
            lost.append(tenant.key)
    if lost:
        starter.end_orphans(lost)
        _log.warning("%d attempts were lost when an earlier process died", len(lost))
    why = "the process that held it died without evidence of its end"
    return found + [Ending(key, 0.0, None, None, Why.LOST, why, None) for key in lost]
