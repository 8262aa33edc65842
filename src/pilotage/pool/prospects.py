"""What pools can do for waiting jobs: suitable pilots, and when one would start."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from pilotage.base import errors, units
from pilotage.batch.model import SiteSettings
from pilotage.batch.pilot_request import PilotRequest
from pilotage.edge import view
from pilotage.match.cluster import Cluster
from pilotage.match.facts import ExplainReason
from pilotage.match.submission import FOLDER
from pilotage.node.policy import StayLimits
from pilotage.pilot.model import Project
from pilotage.pool import files, state
from pilotage.pool import site as pool_site
from pilotage.pool.files import Aimd, Outside, Pool
from pilotage.pool.policy import breaker
from pilotage.pool.state import PoolObservation, PoolRow
from pilotage.store import Db

#: Assumed memory of a pilot if unknown.
MUCH = float(1 << 60)


class Hope(msgspec.Struct, frozen=True):
    """What a pool does for a job."""

    pool: str
    #: Whether a pilot will start without manual action.
    comes: bool
    #: Explanation, and what a person can do; may be empty.
    words: str
    suggestion: str = ""

    @property
    def reason(self) -> ExplainReason:
        """The same as a part of an explanation."""
        return ExplainReason(f"pool {self.pool}", self.words)


def attributes(name: str, pool: Pool, site: SiteSettings, *, sees: bool) -> dict[str, Any]:
    """Return what requirements may ask of a pilot of a pool, as far as it is known before it comes.

    Whether it sees the project's folder is known by those that came before it.
    """
    asked = pool.pilot
    return {
        "site": pool.site, "pool": name, "cpus": asked.cpus, "gpus": asked.gpus, "os": "linux",
        "batch": site.batch, FOLDER: sees, **({"memory": asked.bytes} if asked.bytes else {}),
    }  # fmt: skip


def sees(db: Db, pool: str) -> bool:
    """Return whether the newest pilot of a pool saw the project's folder; True without pilots."""
    return bool(db.value("pool_sight", pool=pool) != Project.HIDDEN)


def given(pool: Pool, site: SiteSettings, seen: PoolObservation | None) -> PilotRequest:
    """Return what a pilot of a pool has: the site or those that came say what the pool does not."""
    asked = pool.pilot
    memory, time = asked.bytes, asked.lifetime(site)
    if memory is None and seen is not None:
        before = seen.sight
        alike = (before.provider, before.cores) == (pool.site, asked.cpus)
        memory = int(before.memory) if alike and before.memory < MUCH else None
    return replace(
        asked, memory="" if memory is None else memory, time="" if time is None else time
    )


def outlives(pilot: PilotRequest, kind: Cluster) -> bool:
    """Return whether a pilot lives for longer than a job of a kind, that begins soon after it."""
    life = pilot.seconds
    if kind.time is None or life is None:
        return True
    return kind.time <= life - StayLimits.of(0.0, life, None).grace


def suits(kind: Cluster, pilot: PilotRequest, like: Mapping[str, Any]) -> bool:
    """Return whether jobs of a kind may run on pilots that are so, however large they are."""
    return kind.gpus <= pilot.gpus and outlives(pilot, kind) and kind.accepts(like)


def holds(pilot: PilotRequest, kind: Cluster) -> bool:
    """Return whether a pilot is large enough for a job of a kind."""
    return kind.cpus <= pilot.cpus and (pilot.bytes is None or kind.memory <= pilot.bytes)


def hopes(db: Db, root: Path, kind: Cluster, now: float) -> list[Hope]:
    """Return what each pool that suits jobs of a kind would do for them, the best first."""
    rows, agents = state.rows(db), view.pilot_sites(db, now)
    found = []
    for name in files.names(root):
        row = rows.get(name, PoolRow(name))
        try:
            pool = row.changed.apply(files.read(root, name))
            site = pool_site.of(pool_site.read(root, pool.site, agents), agents.get(pool.site))
        except errors.PilotageError:
            # The error is reported with the pools.
            continue
        wish = given(pool, site, row.seen)
        like = attributes(name, pool, site, sees=sees(db, name))
        if not kind.accepts(like) or kind.gpus > wish.gpus:
            continue
        if small := _small(pool, wish, kind):
            found.append(Hope(name, False, small, f"`[pilot]` of pools/{name}.toml says what"))
        elif holds(wish, kind):
            found.append(hope(name, pool, row, now, state.said(db, name)))
    return sorted(found, key=lambda one: not one.comes)


def hope(name: str, pool: Pool, row: PoolRow, now: float, said: str = "") -> Hope:
    """Return whether and when a pool has another pilot; `said` is of those that wait."""
    seen, show = row.seen, f"`pilotage pool show {name}` says more"
    if row.asked:
        return Hope(
            name, False, row.reason or row.asked, f"`pilotage pool resume {name}` resumes it"
        )
    if seen is None or not row.looked:
        return Hope(name, True, "it has not been checked yet: that happens while the project runs")
    on_its_way = seen.sight.pending
    if isinstance(pool.control, Aimd):
        # What was ordered in the last look had not been seen by then.
        on_its_way = max(on_its_way, int(row.demand // seen.sight.cores) - seen.sight.ready)
    if on_its_way > 0:
        latency = units.for_people(60 * math.ceil(row.care.latency / 60))
        count = "1 pilot is" if on_its_way == 1 else f"{on_its_way} pilots are"
        words = f"{count} on order; one is reckoned to take {latency} to come"
        why = seen.closed or said
        return Hope(name, True, f"{words} ({why})" if why else words, show)
    if not breaker.allowed(row.care, seen.sight, now):
        wait = units.for_people(max(0.0, row.care.until - now))
        why = f"{row.reason}; it tries again in {wait}"
        return Hope(name, False, why, f"`pilotage pool resume {name}` tries again at once")
    if row.reason:
        return Hope(name, bool(seen.sight.ready), row.reason, show)
    if full := _full(pool, seen):
        return Hope(name, bool(seen.sight.ready), full, show)
    if seen.meter.starved:
        return Hope(name, bool(seen.sight.ready), row.words, show)
    return Hope(name, True, _soon(pool, seen), show)


def _small(pool: Pool, wish: PilotRequest, kind: Cluster) -> str:
    """Return what pilots of a pool have too little of, where that is not plain from their cores."""
    if not outlives(wish, kind):
        long, life = units.for_people(kind.time or 0.0), units.for_people(wish.seconds or 0.0)
        return f"a job of {long} needs a pilot that lives for longer than {life}"
    if pool.pilot.bytes is None and wish.bytes and kind.memory > wish.bytes:
        return f"its pilots came with {wish.bytes / 1e9:.3g} GB, since it asks for no `memory`"
    return ""


def _full(pool: Pool, seen: PoolObservation) -> str:
    """Return why a pool may have no more pilots; empty if it may."""
    sight = seen.sight
    if seen.closed:
        return seen.closed
    if (sight.ready + sight.pending + sight.draining + 1) * sight.cores > pool.maximum:
        return f"it has as many cores as it may: {pool.maximum}"
    if seen.room <= 0 or (seen.quota is not None and seen.quota < sight.cores):
        return f"site {pool.site} has as many pilots as it may"
    return ""


def _soon(pool: Pool, seen: PoolObservation) -> str:
    control, often = pool.control, units.for_people(pool.seconds)
    if isinstance(control, Outside):
        return "an external controller decides how many pilots it has"
    if not isinstance(control, Aimd) or not control.hint:
        return f"it decides by how its pilots are used, every {often}"
    policy = control.policy()
    if not seen.sight.ready and not seen.sight.callable:
        return f"it has no pilot, so it orders one as it looks next: that is every {often}"
    return f"it orders a pilot once this has waited for about {units.for_people(policy.patience)}"
