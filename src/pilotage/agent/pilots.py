"""Pilots that hubs order: shared fairly between hubs, admitted within limits, and started here.

Each place goes to the hub that uses the smallest part of its maximum. Where a site is full, waiting
pilots make room for a hub that has less of its maximum; running pilots are never ended. The batch
system starts this agent's own copy of the pilot: an order brings a size and a secret, no program.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from pilotage.agent import records
from pilotage.agent.app.command import Command
from pilotage.agent.app.model import Application
from pilotage.agent.job_limits import ActiveJobs
from pilotage.agent.settings import Settings
from pilotage.base import errors, text
from pilotage.batch.model import SiteSettings
from pilotage.bus.model import Job
from pilotage.edge import order
from pilotage.edge.order import PILOT, PilotOrder
from pilotage.job import moves
from pilotage.job import records as jobs
from pilotage.job.model import State
from pilotage.job.retry import Next
from pilotage.store import Db


class OrderedPilot(msgspec.Struct, frozen=True):
    """A pilot that a hub has ordered, and that was not started."""

    hub: str
    number: int
    site: str
    cores: int


class PilotLimit(msgspec.Struct, frozen=True):
    """Maximal cores and waiting pilots of a hub."""

    #: Cores in all, and pilots that wait.
    cores: int
    pending: int


class PilotUse(msgspec.Struct):
    """Current cores and waiting pilots of a hub."""

    cores: int = 0
    #: Pilots that wait in batch queues, and those of them at each site.
    waiting: int = 0
    at: dict[str, int] = {}


class PilotDecision(msgspec.Struct, frozen=True):
    """Pilots to start, and why others wait."""

    taken: list[OrderedPilot]
    #: By hub, the first reason.
    why: dict[str, str]
    #: Number of places to give back, by hub and site.
    back: dict[tuple[str, str], int]


def share(
    claims: Mapping[str, Sequence[OrderedPilot]], limits: Mapping[str, PilotLimit],
    uses: Mapping[str, PilotUse], room: Mapping[str, int], leaving: Mapping[str, int],
) -> PilotDecision:  # fmt: skip
    """Decide which pilots start; `room` is free places by site, `leaving` those soon free."""
    left = {hub: list(some) for hub, some in claims.items() if some and hub in limits}
    now = {
        hub: PilotUse(one.cores, one.waiting, dict(one.at))
        if (one := uses.get(hub))
        else PilotUse()
        for hub in limits
    }
    free = dict(room)
    taken: list[OrderedPilot] = []
    why: dict[str, str] = {}
    short: dict[str, list[OrderedPilot]] = {}
    while left:
        hub = min(left, key=lambda one: (now[one].cores / limits[one].cores, one))
        claim = left[hub].pop(0)
        if not left[hub]:
            del left[hub]
        if words := _full(limits[hub], now[hub], claim):
            why.setdefault(hub, words)
        elif free.get(claim.site, 0) <= 0:
            why.setdefault(hub, f"{claim.site} has as many pilots as it may")
            short.setdefault(claim.site, []).append(claim)
        else:
            taken.append(claim)
            free[claim.site] -= 1
            _count(now[hub], claim)
    back: dict[tuple[str, str], int] = {}
    for site, some in short.items():
        for hub in _givers(site, some[leaving.get(site, 0) :], limits, now):
            back[hub, site] = back.get((hub, site), 0) + 1
    return PilotDecision(taken, why, back)


def _full(limit: PilotLimit, use: PilotUse, claim: OrderedPilot) -> str:
    if use.cores + claim.cores > limit.cores:
        return f"{use.cores} of {limit.cores} cores for this hub are taken"
    if use.waiting >= limit.pending:
        return f"{use.waiting} of its pilots wait already"
    return ""


def _count(use: PilotUse, claim: OrderedPilot) -> None:
    use.cores += claim.cores
    use.waiting += 1
    use.at[claim.site] = use.at.get(claim.site, 0) + 1


def _givers(
    site: str,
    claims: Sequence[OrderedPilot],
    limits: Mapping[str, PilotLimit],
    now: Mapping[str, PilotUse],
) -> list[str]:
    """Choose the hubs that give a place back for each request that deserves one."""
    found = []
    parts = {hub: use.cores / limits[hub].cores for hub, use in now.items()}
    for claim in claims:
        others = [hub for hub in now if hub != claim.hub and now[hub].at.get(site, 0) > 0]
        if not others:
            break
        most = max(others, key=lambda hub: (parts[hub], hub))
        after = parts[claim.hub] + claim.cores / limits[claim.hub].cores
        if _full(limits[claim.hub], now[claim.hub], claim):
            continue
        # It must still have the greater part afterwards, or the two would take turns for ever.
        if parts[most] - claim.cores / limits[most].cores < after:
            continue
        found.append(most)
        parts[most] -= claim.cores / limits[most].cores
        now[most].at[site] -= 1
        parts[claim.hub] = after
        _count(now[claim.hub], claim)
    return found


#: Status of an order that was not examined yet.
WAITS = "waits for its turn"
ROOM = "cancelled: it waited, and another hub has fewer pilots"
_CLOSED = "this site starts no pilots now"
_AWAY = "its hub is not connected"
_UNSERVED = "agent.toml does not name its hub any more"
#: Orders of a hub that may wait beyond its limits.
_SPARE = 1000
_SECRET, _VOUCH = "secret", "hub.pem"
#: The largest file with certificates.
_LARGEST = 1 << 20
#: Addresses to listen at that are no names of this machine.
_ANYWHERE = frozenset({"0.0.0.0", "::", "*"})  # noqa: S104 - compared with


# -- starting --------------------------------------------------------------------------------------


def objections(app: Application, job: Job, settings: Settings) -> list[str]:
    """Return why pilots of this site do not go to the hub that an order names."""
    if app.takes != PILOT:
        return []
    try:
        asked = order.pilot(job.config)
    except errors.Denied:
        # The rules of the application say so.
        return []
    url = _home(asked, settings)
    if not settings.hub.url and not any(_same(url, one) for one in app.hubs):
        return [f"`config.hub` is `{url}`, and `hubs` in apps/pilot.toml does not name it"]
    if url.startswith("http:") and settings.batch.batch != "local":
        return [f"`config.hub` is `{url}`, where pilots would show their secrets: use https"]
    return []


def hub(job: Job, settings: Settings) -> str:
    """Return where the pilot of an order goes."""
    return _home(order.pilot(job.config), settings)


def _home(asked: PilotOrder, settings: Settings) -> str:
    """Return where a pilot goes: a hub that this agent dials is where the agent finds it."""
    return settings.hub.url or asked.hub


def _same(one: str, other: str) -> bool:
    return one.rstrip("/").lower() == other.rstrip("/").lower()


def check(app: Application, job: Job, settings: Settings, attempt: int) -> None:
    """Raise `Denied` for a pilot that may not start, or not any more."""
    if attempt > 1:
        hint = "the hub orders another if it needs one"
        raise errors.Denied("its batch job was lost, and a pilot is started once", hint=hint)
    if reasons := objections(app, job, settings):
        raise errors.Denied("; ".join(reasons))


def files(job: Job, settings: Settings) -> dict[str, str]:
    """Return the files of a pilot by name: its secret, and the CA certificate of its hub.

    They travel in the order of its batch job, which only the user of the site may read; the pilot
    removes its secret.
    """
    asked = order.pilot(job.config)
    vouch = _read(settings.hub.ca) if settings.hub.ca else asked.vouch
    return {_SECRET: asked.secret} | ({_VOUCH: vouch} if vouch else {})


def _read(file: str) -> str:
    try:
        with open(file, encoding="ascii") as opened:
            return opened.read(_LARGEST)
    except (OSError, ValueError) as error:
        raise errors.Unavailable(f"cannot read {file}: {error}") from error


def command(app: Application, job: Job, settings: Settings, program: str, link: str) -> Command:
    """Write what starts a pilot in the folder that has its files: `program` is the agent's own."""
    asked, site = order.pilot(job.config), settings.batch
    argv = [site.python, program, "--hub", _home(asked, settings), "--link", link]
    argv += ["--secret-file", _SECRET, "--name", asked.name]
    argv += ["--cpus", str(job.resources.cpus)]
    argv += ["--idle", f"{asked.idle:.0f}"] if asked.idle is not None else []
    argv += ["--lifetime", str(job.wall_time)] if job.wall_time else []
    argv += ["--ca", _VOUCH] if settings.hub.ca or asked.vouch else []
    argv += _shown(site)
    return Command(argv=tuple(argv), env=dict(app.env), launcher="none")


def _shown(site: SiteSettings) -> list[str]:
    """Name the folder that pilots share, and those that payloads in a sandbox may use."""
    cache = ["--cache-folder", site.cache_folder] if site.cache_folder else []
    readable = [word for one in site.readable for word in ("--readable", one)]
    return cache + readable + [word for one in site.writable for word in ("--writable", one)]


def link(settings: Settings, url: str) -> str:
    """Return how pilots reach a hub: directly, or through a relay of this agent."""
    relay = settings.relay
    listen = settings.hub.relay or (relay.listen if _same(relay.hub, url) else "")
    if not listen:
        return "direct"
    host, _, port = listen.rpartition(":")
    if host.strip("[]") in _ANYWHERE:
        host = settings.batch.login or socket.gethostname()
    return f"relay:{host}:{port}"


# -- sharing ---------------------------------------------------------------------------------------


class _Row(NamedTuple):
    """The job of a pilot that is not over."""

    job: int
    user: str
    queue: str
    state: str
    cores: int
    attempt: int
    reason: str
    asked: str

    @property
    def waits(self) -> bool:
        """Whether it is in the batch queue, or about to be."""
        return self.state not in ("running", "staging_out")


def settle(
    db: Db, app: Application | None, settings: Settings, active: ActiveJobs, now: float,
    away: Collection[str] = (),
) -> int:  # fmt: skip
    """Start pilots within the limits of their hubs; return how many.

    Each place goes to the hub that uses the smallest part of its maximum. Those of users that are
    `away` wait: such a pilot would find no hub.
    """
    rows = [_Row(*row) for row in db.rows("edge_pilots")]
    waiting = [one for one in rows if one.state == "waiting"]
    if not waiting:
        return 0
    if app is None:
        for one in waiting:
            _say(db, one, _CLOSED, now)
        return 0
    there = [one for one in rows if one.state not in ("waiting", "held")]
    by_job = {one.job: one for one in rows}
    site, claims = settings.site, dict[str, list[OrderedPilot]]()
    for one in waiting:
        if one.user in away:
            _say(db, one, _AWAY, now)
        else:
            claims.setdefault(one.user, []).append(OrderedPilot(one.user, one.job, site, one.cores))
    limits = {user: _limit(app, user) for user in {one.user for one in rows}}
    free = _room(settings) - active.all
    leaving = sum(bool(one.asked) for one in there)
    verdict = share(claims, limits, _uses(there, site), {site: free}, {site: leaving})
    taken = {one.number for one in verdict.taken}
    let = sum(_let(db, by_job[job], settings, active, now) for job in sorted(taken))
    for one in waiting:
        if one.job not in taken and one.user not in away:
            _say(db, one, verdict.why.get(one.user, WAITS), now)
    for (user, _), count in verdict.back.items():
        _give_back(db, [one for one in there if one.user == user], count, now)
    return let


class HubPilots(msgspec.Struct):
    """The pilots that a hub has here."""

    #: Orders that wait for their turn, pilots that wait in the batch queue, and those that run.
    ordered: int = 0
    queued: int = 0
    running: int = 0
    #: Cores of those in the batch queue and of those that run.
    cores: int = 0
    #: Why the last order waits; empty if none does.
    why: str = ""


def held(db: Db) -> dict[str, HubPilots]:
    """Count the pilots of each hub."""
    found: dict[str, HubPilots] = {}
    for one in (_Row(*row) for row in db.rows("edge_pilots")):
        mine = found.setdefault(one.user, HubPilots())
        if one.state in ("waiting", "held"):
            mine.ordered += 1
            mine.why = one.reason
            continue
        mine.queued += one.waits
        mine.running += not one.waits
        mine.cores += one.cores
    return found


def cancel_unserved(db: Db, settings: Settings, now: float) -> int:
    """Cancel pilots that do not run yet, of hubs that are not dialled any more; return how many."""
    users = sorted(one.user for one in settings.dialled.values())
    rows = db.rows("edge_pilots_unserved", users=text.dump(users))
    for (number,) in rows:
        moves.cancel(db, jobs.get(db, number), now=now, reason=_UNSERVED)
    return len(rows)


def most(app: Application, user: str) -> int:
    """Return how many jobs of an application a user may have that are not over; 0 means any.

    Orders wait for their turn, which must not take longer with each: no hub needs many.
    """
    limits = app.limits_of(user)
    return limits.jobs or (limits.maximum + _SPARE if app.takes == PILOT else 0)


def _limit(app: Application, user: str) -> PilotLimit:
    limits = app.limits_of(user)
    return PilotLimit(limits.maximum, limits.pending or limits.maximum)


def _room(settings: Settings) -> int:
    return min(settings.batch.jobs, settings.limits.jobs or settings.batch.jobs)


def _uses(there: list[_Row], site: str) -> dict[str, PilotUse]:
    found: dict[str, PilotUse] = {}
    for one in there:
        use = found.setdefault(one.user, PilotUse())
        use.cores += one.cores
        if one.waits:
            use.waiting += 1
            use.at = {site: use.waiting}
    return found


def _let(db: Db, one: _Row, settings: Settings, active: ActiveJobs, now: float) -> bool:
    """Start one pilot, unless the limits of all jobs are reached."""
    group = (one.user, one.queue)
    if words := active.why_not(group, settings.limits):
        _say(db, one, words, now)
        return False
    active.add(group)
    moves.move(db, one.job, one.attempt, State.WAITING, Next(State.QUEUED, ""), now=now)
    return True


def _say(db: Db, one: _Row, words: str, now: float) -> None:
    """Report to the hub why its pilot waits, if that has changed."""
    if words != one.reason:
        db.run("edge_pilot_say", job=one.job, reason=words)
        records.tell(db, one.job, now)


def _give_back(db: Db, mine: list[_Row], count: int, now: float) -> None:
    """Cancel pilots of a hub that wait in the batch queue, the newest first."""
    idle = [one for one in mine if one.waits and not one.asked]
    for one in sorted(idle, key=lambda one: -one.job)[:count]:
        moves.cancel(db, jobs.get(db, one.job), now=now, reason=ROOM)


def found(find: Callable[[str], Application]) -> Application | None:
    """Return the application that takes pilots; none if there is none that may be used."""
    try:
        app = find(PILOT)
    except errors.PilotageError:
        return None
    return app if app.enabled and app.takes == PILOT else None


def secretless(body: bytes) -> bytes:
    """Remove secrets from a refused message before it is stored."""
    return b"" if text.dump(PILOT).encode() in body else body
