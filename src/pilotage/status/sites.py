"""All sites in one list for commands and the page, and what keeps each from accepting jobs.

A site is a file of the project, a name that an agent speaks for, or where pilots come from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from pilotage.base import errors
from pilotage.batch import files
from pilotage.edge import forward_records, view
from pilotage.edge.health import MISSING, USUAL_S
from pilotage.edge.view import FRESH_S, BrokerView, EdgeSite
from pilotage.job.model import JobSpec
from pilotage.match.place import SITE
from pilotage.match.sites import SiteCause, SiteView
from pilotage.match.sites import SiteLimits as Known
from pilotage.pool import files as pools
from pilotage.project.settings import Settings
from pilotage.project.tokens import TokenScope
from pilotage.store import Db

#: What a site is: a batch system that this hub drives, one behind an agent, or nodes whose pilots
#: have come by themselves.
Kind = Literal["batch", "agent", "pilots"]
#: The name of this machine among sites.
_LOCAL = "local"
_LOGIN = "pilotage site login"
_TWO = "sites/{name}.toml has the name of a site that an agent serves ({speaker}): {who} used"
_RENAME = "rename the file, or have the agent use another name"
_FORWARDS = "jobs go to another hub, which knows its own sites"
_CAUSES = {
    "silent": SiteCause.SILENT, "trouble": SiteCause.TROUBLE, "not answering": SiteCause.TROUBLE,
    "needs login": SiteCause.TROUBLE, "bad file": SiteCause.TROUBLE,
    "not served": SiteCause.UNSERVED, "unheard": SiteCause.UNHEARD, "drained": SiteCause.DRAINED,
    "draining": SiteCause.DRAINED,
}  # fmt: skip


class Drain(msgspec.Struct, frozen=True):
    """A drained site is given no more jobs."""

    #: Who asked for it, when and why.
    by: str
    at: float
    why: str = ""


class SiteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A site with its state."""

    name: str
    kind: Kind
    #: The state, its reason as a sentence, and since when, if that is known.
    state: str
    words: str = ""
    since: float | None = None
    #: Set if a person has drained it.
    drain: Drain | None = None
    batch: str = ""
    host: str = ""
    about: str = ""
    #: Whether a hub serves it now.
    kept: bool = False
    #: Jobs of this hub there by state, and pilots that have come or wait.
    jobs: dict[str, int] = {}
    pilots: int = 0
    #: When its agent or one of its pilots was last seen.
    heard: float | None = None
    #: The report of its agent.
    agent: EdgeSite | None = None
    #: Why its name stands for two things; empty if it does not.
    conflict: str = ""


class SiteList(NamedTuple):
    """All sites, and the state of the broker, if there is one."""

    sites: list[SiteStatus]
    broker: BrokerView | None


def look(db: Db, root: Path, settings: Settings, now: float, *, running: bool = True) -> SiteList:
    """List all sites; while no hub is `running`, nothing is known of agents."""
    heard = view.look(db, now, running=running)
    brokered = settings.bus.url or any(not one.ported for one in heard.edges)
    broker = heard.broker if brokered else None
    return SiteList(_List(db, root, now, {one.name: one for one in heard.edges}).all(), broker)


class _List:
    """Reads the common facts once, then each site."""

    def __init__(self, db: Db, root: Path, now: float, agents: dict[str, EdgeSite]) -> None:
        self._root, self._now, self._agents = root, now, agents
        self._rows = {row[1]: row for row in db.rows("site_all")}
        self._jobs: dict[str, dict[str, int]] = {}
        for mark, state, count in db.rows("site_counts"):
            self._jobs.setdefault(mark.removeprefix(SITE), {})[state] = count
        self._pilots = {row[0]: row[1:] for row in db.rows("site_pilots")}
        #: By site that something may come from, the scopes of tokens for it.
        self._tokens: dict[str, set[str]] = {}
        for name, scope in db.rows("site_tokens", now=now):
            self._tokens.setdefault(name, set()).add(scope)

    def all(self) -> list[SiteStatus]:
        own = set(files.names(self._root))
        names = own | self._agents.keys() | self._pilots.keys() | self._tokens.keys()
        return [self._one(name, own) for name in sorted(names - {_LOCAL})]

    def _one(self, name: str, own: set[str]) -> SiteStatus:
        agent = self._agents.get(name)
        if name in own and agent is not None:
            # A name stands for what was used first.
            theirs = name in self._rows and self._rows[name][10] == "agent"
            used = "the agent is" if theirs else "the file is"
            words = _TWO.format(name=name, speaker=agent.speaker or "anybody", who=used)
            made = self._agent(agent) if theirs else self._file(name)
            made = msgspec.structs.replace(made, conflict=f"{words}; {_RENAME}", agent=agent)
        elif name in own:
            made = self._file(name)
        else:
            made = self._agent(agent) if agent else self._nodes(name)
        return self._counted(made)

    def _counted(self, one: SiteStatus) -> SiteStatus:
        """Add the jobs of this hub there, and whether the site is drained."""
        row, drain = self._rows.get(one.name), None
        if row is not None and row[6]:
            drain = Drain(*row[7:10])
        state = one.state
        if drain and not _CAUSES.get(state):
            state = "drained"
        return msgspec.structs.replace(
            one, state=state, drain=drain, jobs=self._jobs.get(one.name, {}),
            pilots=self._pilots.get(one.name, (0,))[0],
        )  # fmt: skip

    def _file(self, name: str) -> SiteStatus:
        row = self._rows.get(name)
        kept = row is not None and self._now - row[4] < FRESH_S
        try:
            site = files.read(self._root, name)
        except errors.ConfigError as error:
            return SiteStatus(
                name=name, kind="batch", state="bad file", words=str(error), kept=kept
            )
        made = SiteStatus(
            name=name, kind="batch", state="here" if not site.host else "not connected",
            batch=site.batch, host=site.host, about=site.about, kept=kept,
            since=(row[3] or None) if row else None,
        )  # fmt: skip
        return _told(made, row[2]) if kept and row else made

    def _agent(self, one: EdgeSite) -> SiteStatus:
        return SiteStatus(
            name=one.name, kind="agent", state=one.state, words=one.words, since=one.since,
            batch=one.batch, heard=one.heard, agent=one, kept=one.state != "unknown",
        )  # fmt: skip

    def _nodes(self, name: str) -> SiteStatus:
        """Describe where pilots come from, or may come from, by themselves."""
        if name not in self._pilots and TokenScope.AGENT in self._tokens[name]:
            return SiteStatus(
                name=name, kind="agent", state="unheard", words="its agent never came"
            )
        if name not in self._pilots:
            return SiteStatus(
                name=name, kind="pilots", state="unheard", words="none of its pilots came"
            )
        _, taking, heard = self._pilots[name]
        state = "well" if taking else "not served"
        words = "" if taking else "none of its pilots takes work"
        return SiteStatus(name=name, kind="pilots", state=state, words=words, heard=heard or None)


def _told(one: SiteStatus, trouble: str) -> SiteStatus:
    """Set the state that the serving hub has reported."""
    if not trouble:
        return msgspec.structs.replace(one, state="connected" if one.host else "here")
    state = "needs login" if _LOGIN in trouble else "not answering"
    return msgspec.structs.replace(one, state=state, words=trouble)


# -- whether they take jobs ------------------------------------------------------------------------


def standing(
    db: Db, root: Path, settings: Settings, now: float, named: Iterable[str], *,
    running: bool = True,
) -> SiteView:  # fmt: skip
    """Return what keeps sites, among them those that are `named`, from accepting jobs."""
    found = look(db, root, settings, now, running=running)
    orders = _ordered(root)
    known = {one.name: _known(one, orders) for one in found.sites}
    known[_LOCAL] = Known(name=_LOCAL)
    for name in set(named) - known.keys():
        # Where there were pilots once there may be some again.
        last = db.value("site_last_pilot", name=name)
        if last is not None:
            known[name] = Known(name=name, cause=SiteCause.UNSERVED, since=last)
    return SiteView(known, _unsure(db, found.broker, now))


def check(
    db: Db, root: Path, settings: Settings, specs: Iterable[JobSpec], now: float, *,
    running: bool = True,
) -> list[str]:  # fmt: skip
    """Refuse jobs that their sites will never accept; return notes on those that will wait."""
    asked = [one for one in specs if one.site]
    if not asked:
        return []
    sites = standing(db, root, settings, now, {one.site for one in asked}, running=running)
    return list(dict.fromkeys(note for one in asked for note in sites.check(one, now)))


def _ordered(root: Path) -> set[str]:
    """Return the sites that pools order pilots at."""
    found = set[str]()
    for name in pools.names(root):
        try:
            found.add(pools.read(root, name).site)
        except errors.ConfigError:
            # It is reported with the pools.
            continue
    return found


def _known(one: SiteStatus, orders: Collection[str]) -> Known:
    cause, since, by, words = _CAUSES.get(one.state), one.since, "", one.words
    if one.agent is not None and one.agent.draining and one.kind == "agent":
        told = one.agent.drain
        cause, words = cause or SiteCause.DRAINED, told.why
        by, since = told.by or "its administrator", told.since or since
    if one.drain is not None:
        cause, since, by, words = SiteCause.DRAINED, one.drain.at, one.drain.by, one.drain.why
    elif one.state == "silent":
        since, words = one.heard, ""
    # Pilots run anything, also where an agent runs applications alone.
    apps = one.agent.applications if one.agent is not None and one.kind == "agent" else None
    return Known(
        name=one.name, cause=cause, since=since, by=by, words=words,
        applications=None if one.pilots or one.name in orders else apps,
    )  # fmt: skip


def _unsure(db: Db, broker: BrokerView | None, now: float) -> str:
    """Return why there may be sites that are not known yet."""
    if forward_records.forwards(db):
        return _FORWARDS
    if broker is None:
        return ""
    if broker.trouble:
        return broker.trouble
    young = broker.since is None or now - broker.since < MISSING * USUAL_S
    return "the hub listens since a moment only" if young else ""
