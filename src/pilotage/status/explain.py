"""JobFacts from the store for explanations of jobs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pilotage.base import text, units
from pilotage.base.owner import me
from pilotage.job import logs, records
from pilotage.job.model import Attempt, Job, JobSpec, State, Workflow
from pilotage.match import queued, sites
from pilotage.match.cluster import Clusters
from pilotage.match.facts import JobFacts, LimitUse, QuotaUse, ReservedFor
from pilotage.match.place import SITE
from pilotage.match.share import Shares, UsageRow, group_of
from pilotage.match.sites import Objection, SiteView
from pilotage.project import settings as config
from pilotage.project.settings import Settings
from pilotage.status import offers
from pilotage.status import sites as site_view
from pilotage.status.offers import OfferView
from pilotage.store import Db

_LONGEST = 200
#: The most queued jobs whose owners are counted; later ones have waited for less.
_OLDEST = 100_000


class JobExplainer:
    """Explains many jobs from the facts of one moment."""

    def __init__(
        self, db: Db, settings: Settings, *, now: float, running: bool, root: Path | None = None
    ) -> None:
        """Read the common facts; pools are those of the project in `root`."""
        self._root = root
        self._clusters = Clusters()
        self._settings = settings
        #: By name of a site that was asked for, what is known of all.
        self._sites: dict[str, SiteView] = {}
        self._db = db
        self._shares = config.matcher(settings).shares
        self._shares.load(UsageRow(*row) for row in db.rows("usage_all"))
        self._now = now
        self._running = running
        self.scene = offers.read(db, settings, now=now, running=running)

    def facts(self, number: int) -> JobFacts:
        """Read the facts of a job."""
        db, job = self._db, records.get(self._db, number)
        attempts = records.attempts(db, number)
        last = attempts[-1] if attempts else None
        return JobFacts(
            now=self._now,
            job=job,
            running=self._running,
            before=tuple((on, state or "") for on, state in db.rows("dependency_of", job=number)),
            holders=tuple(one for (one,) in db.rows("job_holding_limit", key=job.limit_key))
            if job.limit_key
            else (),
            where=_where(db, last),
            flow=_flow(last),
            attempt=last,
            asked=db.value("job_asked_of", id=number) or "",
            last_words=_last_words(last.dir) if last else "",
            **self._queued(job),
        )

    def _queued(self, job: Job) -> dict[str, Any]:
        """Read the facts of a queued job."""
        if job.state is not State.QUEUED or isinstance(job.spec.recipe, Workflow):
            return {}
        owner, scene = job.owner or me(), self.scene
        reserved = scene.reserved.get(job.id)
        return {
            "prospect": scene.offers.prospect(job.spec, owner),
            "site": self._site(job),
            "coming": scene.coming,
            "kept": ReservedFor(_pilot(reserved.pilot), reserved.at) if reserved else None,
            "quota": _quota(self._shares, owner, scene.cores, job.spec.resources.cpus),
            "ahead": self._line(job, owner),
            **self._pools(job, owner),
        }

    def _site(self, job: Job) -> Objection | None:
        """Return why the site that a job names does not accept it."""
        site, root = job.spec.site, self._root
        if root is None or not site:
            return None
        if site not in self._sites:
            self._sites[site] = site_view.standing(
                self._db, root, self._settings, self._now, [site], running=self._running
            )
        return self._sites[site].judge(job.spec)

    def _pools(self, job: Job, owner: str) -> dict[str, Any]:
        """Return what pools would do for a job."""
        if self._root is None or not (self._root / "pools").is_dir():
            return {}
        from pilotage.pool import (
            prospects as pool_hope,  # most projects have no pools, and it is much to load
        )

        kind = self._clusters.of(job.spec, owner)
        found = pool_hope.hopes(self._db, self._root, kind, self._now)
        return {
            "pools": tuple(one.reason for one in found),
            "hope": any(one.comes for one in found),
            "advice": next((one.suggestion for one in found if one.suggestion), ""),
        }

    def _line(self, job: Job, owner: str) -> LimitUse:
        mine = self._shares.key(owner)
        owners = self._db.rows("offer_owners", most=_OLDEST) if any(mine) else []
        first = [one for (one,) in owners if self._shares.key(one or me()) < mine]
        own = self._db.value("offer_ahead", owner=job.owner, priority=job.priority, id=job.id)
        others = self._db.value("offer_rivals", owners=text.dump(first)) if first else 0
        return LimitUse(own, others)


def _quota(shares: Shares, owner: str, cores: dict[str, int], needs: int) -> QuotaUse | None:
    """Find the quota of the owner or of its group that a job would exceed."""
    for name in dict.fromkeys((owner, group_of(owner))):
        most = shares.slice(name).quota
        alike = (lambda one: one) if name == owner else group_of
        used = sum(count for one, count in cores.items() if alike(one) == name)
        if most is not None and used + needs > most:
            return QuotaUse(name, most, used)
    return None


def _flow(attempt: Attempt | None) -> int:
    """Return the flow that an attempt is; 0 if it is none."""
    mark, _, number = attempt.starter.partition(":") if attempt else ("", "", "")
    return int(number) if mark == "flow" and number else 0


def _where(db: Db, attempt: Attempt | None) -> str:
    """Name the place of an attempt."""
    if attempt is not None and attempt.starter.startswith(SITE):
        return _at_site(db, attempt)
    number = offers.holder(attempt.starter) if attempt else 0
    row = db.row("pilot_get", id=number) if number else None
    return f"{row[2]} ({_pilot(number)})" if row else "local"


def _at_site(db: Db, attempt: Attempt) -> str:
    """Name the site of an attempt, and the batch job that it is there."""
    site = attempt.starter.removeprefix(SITE)
    row = db.row("submission_of", job=attempt.job, attempt=attempt.number)
    if row is None:
        return site
    batch, key, number, reason, place, tries, shape = row
    words = f"{batch} job {number}" if number else f"asked of {batch} as {key}"
    part = f", part {place}" if place else ""
    again = f", try {tries}" if tries > 1 else ""
    more = "".join(f": {one}" for one in (shape, reason) if one)
    return f"{site} ({words}{part}{again}{more})"


def _pilot(number: int) -> str:
    return f"pilot {number}" if number else "this machine"


def _last_words(folder: str) -> str:
    written = logs.read(logs.path(folder, "stderr"), 1)
    return text.show(written.decode("utf-8", "replace").strip())[:_LONGEST]


def reasons(
    found: Iterable[Job], scene: OfferView, now: float, known: SiteView | None = None
) -> dict[int, str]:
    """Return short reasons why queued jobs do not start, for a column of a table.

    `known` are the sites that such jobs name.
    """
    short: dict[int, str] = {}
    for job in found:
        if job.state is not State.QUEUED:
            continue
        workflow = isinstance(job.spec.recipe, Workflow)
        why = [job.reason, "" if workflow else _in_short(job, scene, known, now)]
        if job.not_before > now and not job.reason:
            why.append(f"may start in {units.for_people(job.not_before - now)}")
        short[job.id] = "; ".join(filter(None, why))
    return short


def _in_short(job: Job, scene: OfferView, known: SiteView | None, now: float) -> str:
    if reserved := scene.reserved.get(job.id):
        return f"{_pilot(reserved.pilot)} is kept for it"
    prospect = scene.offers.prospect(job.spec, job.owner or me())
    if known is not None and not prospect.ever and (found := known.judge(job.spec)):
        return sites.message(found, now)
    return queued.brief(prospect)


def hoped(db: Db, root: Path, spec: JobSpec, owner: str, now: float) -> str:
    """Return which pool of a project will have a pilot for a job, and when; empty if none will."""
    if not (root / "pools").is_dir():
        return ""
    from pilotage.pool import prospects as pool_hope  # as above

    found = pool_hope.hopes(db, root, Clusters().of(spec, owner), now)
    return next((f"{one.pool}: {one.words}" for one in found if one.comes), "")


def hopeless(db: Db, scene: OfferView, root: Path, now: float) -> list[tuple[int, int, str]]:
    """List queued jobs that can never start: the first of each kind, how many, and why."""
    why: dict[int, str] = {}
    kinds = []
    for number, owner in db.rows("job_queued_kinds"):
        spec = records.read_spec(db.value("spec_body", id=number))
        if isinstance(spec.recipe, Workflow):
            continue
        prospect = scene.offers.prospect(spec, owner or me())
        if prospect.never and not hoped(db, root, spec, owner or me(), now):
            kinds.append((number, owner))
            why.setdefault(number, queued.brief(prospect))
    rows = db.rows("job_queued_count", kinds=text.dump(kinds)) if kinds else []
    return [(first, count, why[number]) for number, first, count in rows]
