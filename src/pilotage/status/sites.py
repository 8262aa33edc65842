"""All sites as commands and the page see them, in one list, and what keeps each from taking jobs.

A site is a file of the project, a name that an agent speaks for, or where pilots come from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from pilotage.base import errors
from pilotage.batch import files
from pilotage.edge import forward_records, view
from pilotage.edge.health import MISSING, USUAL_S
from pilotage.edge.view import FRESH_S, BrokerView, EdgeSite
from pilotage.flow.model import Flow, Step
from pilotage.job.model import JobSpec, Workflow
from pilotage.match import wish
from pilotage.match.place import SITE
from pilotage.match.sites import Cause, Sites, hint, message
from pilotage.match.sites import Site as Known
from pilotage.pool import files as pools
from pilotage.project.settings import Settings
from pilotage.project.tokens import Scope
from pilotage.rule.model import Rule
from pilotage.store import Db

#: What a site is: a batch system that this hub drives, one behind an agent, or nodes whose pilots
#: have come by themselves.
Kind = Literal["batch", "agent", "pilots"]
#: The name of this machine among sites.
_LOCAL = "local"
_LOGIN = "pilotage site login"
_TWO = "sites/{name}.toml has the name of a site that an agent speaks for ({speaker}): {who} used"
_RENAME = "rename the file, or have the agent use another name"
_FORWARDS = "jobs go to another hub, which knows its own sites"
_CAUSES = {
    "silent": Cause.SILENT, "trouble": Cause.TROUBLE, "not answering": Cause.TROUBLE,
    "needs login": Cause.TROUBLE, "bad file": Cause.TROUBLE,
    "not served": Cause.UNSERVED, "unheard": Cause.UNHEARD, "drained": Cause.DRAINED,
    "draining": Cause.DRAINED,
}  # fmt: skip


class Drain(msgspec.Struct, frozen=True):
    """That a site is given nothing more."""

    #: Who asked for it, when and why.
    by: str
    at: float
    why: str = ""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A site, and what is known of it."""

    name: str
    kind: Kind
    #: In a word, and what is wrong in a sentence; since when, if that is known.
    state: str
    words: str = ""
    since: float | None = None
    #: What a person had it do here: nothing, or be drained.
    drain: Drain | None = None
    batch: str = ""
    host: str = ""
    about: str = ""
    #: Whether a hub looks after it now.
    kept: bool = False
    #: Jobs of this hub there by state, and pilots that have come or wait.
    jobs: dict[str, int] = {}
    pilots: int = 0
    #: When its agent or one of its pilots was heard of.
    heard: float | None = None
    #: What its agent says of it.
    agent: EdgeSite | None = None
    #: Why its name stands for two things; empty if it does not.
    conflict: str = ""


class Looked(NamedTuple):
    """All sites, and how it goes with the broker; nothing if there is none."""

    sites: list[Seen]
    broker: BrokerView | None


def look(db: Db, root: Path, settings: Settings, now: float, *, running: bool = True) -> Looked:
    """List all sites; while no hub is `running`, nothing is known of agents."""
    heard = view.look(db, now, running=running)
    brokered = settings.bus.url or any(not one.ported for one in heard.edges)
    broker = heard.broker if brokered else None
    return Looked(_List(db, root, now, {one.name: one for one in heard.edges}).all(), broker)


class _List:
    """What all rows of the list need."""

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

    def all(self) -> list[Seen]:
        own = set(files.names(self._root))
        names = own | self._agents.keys() | self._pilots.keys() | self._tokens.keys()
        return [self._one(name, own) for name in sorted(names - {_LOCAL})]

    def _one(self, name: str, own: set[str]) -> Seen:
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

    def _counted(self, one: Seen) -> Seen:
        """Add what this hub has there, and what was asked of the site."""
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

    def _file(self, name: str) -> Seen:
        row = self._rows.get(name)
        kept = row is not None and self._now - row[4] < FRESH_S
        try:
            site = files.read(self._root, name)
        except errors.ConfigError as error:
            return Seen(name=name, kind="batch", state="bad file", words=str(error), kept=kept)
        made = Seen(
            name=name, kind="batch", state="here" if not site.host else "not connected",
            batch=site.batch, host=site.host, about=site.about, kept=kept,
            since=(row[3] or None) if row else None,
        )  # fmt: skip
        return _told(made, row[2]) if kept and row else made

    def _agent(self, one: EdgeSite) -> Seen:
        return Seen(
            name=one.name, kind="agent", state=one.state, words=one.words, since=one.since,
            batch=one.batch, heard=one.heard, agent=one, kept=one.state != "unknown",
        )  # fmt: skip

    def _nodes(self, name: str) -> Seen:
        """Describe where pilots come from, or may come from, by themselves."""
        if name not in self._pilots and Scope.AGENT in self._tokens[name]:
            return Seen(name=name, kind="agent", state="unheard", words="its agent never came")
        if name not in self._pilots:
            return Seen(name=name, kind="pilots", state="unheard", words="none of its pilots came")
        _, taking, heard = self._pilots[name]
        state = "well" if taking else "not served"
        words = "" if taking else "none of its pilots takes work"
        return Seen(name=name, kind="pilots", state=state, words=words, heard=heard or None)


def _told(one: Seen, trouble: str) -> Seen:
    """Take the word of the hub that looks after a site."""
    if not trouble:
        return msgspec.structs.replace(one, state="connected" if one.host else "here")
    state = "needs login" if _LOGIN in trouble else "not answering"
    return msgspec.structs.replace(one, state=state, words=trouble)


# -- whether they take jobs ------------------------------------------------------------------------


def standing(
    db: Db, root: Path, settings: Settings, now: float, named: Iterable[str], *,
    running: bool = True,
) -> Sites:  # fmt: skip
    """Say of sites, among them those that are `named`, what keeps them from taking jobs."""
    found = look(db, root, settings, now, running=running)
    orders = _ordered(root)
    known = {one.name: _known(one, orders) for one in found.sites}
    known[_LOCAL] = Known(name=_LOCAL)
    for name in set(named) - known.keys():
        # Where there were pilots once there may be some again.
        last = db.value("site_last_pilot", name=name)
        if last is not None:
            known[name] = Known(name=name, cause=Cause.UNSERVED, since=last)
    return Sites(known, _unsure(db, found.broker, now))


def check(
    db: Db, root: Path, settings: Settings, specs: Iterable[JobSpec], now: float, *,
    running: bool = True,
) -> list[str]:  # fmt: skip
    """Refuse jobs that their sites will never take; return what to tell of those that wait."""
    asked = [one for one in specs if one.site]
    if not asked:
        return []
    sites = standing(db, root, settings, now, {one.site for one in asked}, running=running)
    return list(dict.fromkeys(note for one in asked for note in sites.check(one, now)))


def check_flow(
    db: Db, root: Path, settings: Settings, flow: Flow, now: float, *, running: bool = True
) -> list[str]:
    """Do the same for the steps of a workflow."""
    names = named(flow)
    if not names:
        return []
    return judge_flow(standing(db, root, settings, now, names, running=running), flow, now)


def check_rules(
    db: Db, root: Path, settings: Settings, rules: Mapping[str, Rule], now: float, *,
    running: bool = True,
) -> list[str]:  # fmt: skip
    """Do the same for the jobs of rules, and for the workflows that rules start."""
    flows = {
        name: msgspec.convert(one.spec.recipe.flow, Flow)
        for name, one in rules.items()
        if isinstance(one.spec.recipe, Workflow)
    }
    names = {one.spec.site for one in rules.values() if one.spec.site}
    names |= {site for flow in flows.values() for site in named(flow)}
    sites = standing(db, root, settings, now, names, running=running) if names else Sites({})
    notes = []
    for name, one in rules.items():
        try:
            told = (
                judge_flow(sites, flows[name], now)
                if name in flows
                else _judge_rule(sites, one.spec, now)
            )
        except errors.BadRule as error:
            error.file, error.line, error.at = one.book, one.line, f"rule.{name}.{error.at}"
            raise
        notes += [f"{name}: {note}" for note in told]
    return notes


def _judge_rule(sites: Sites, spec: JobSpec, now: float) -> list[str]:
    found = sites.judge(spec)
    if found is not None and found.final:
        raise errors.BadRule(message(found, now), hint=hint(found), at="site")
    return [] if found is None else [message(found, now)]


def named(flow: Flow) -> set[str]:
    """Return the sites that the steps of a workflow name."""
    return {site for _, step in _steps(flow) for site in step.sites}


def judge_flow(sites: Sites, flow: Flow, now: float) -> list[str]:
    """Refuse a workflow whose sites will never take its steps; return which steps will wait.

    What a template stands for is known when a step is sent, and judged then.
    """
    notes = []
    for name, step in _steps(flow):
        app, own = application(step)
        for site in step.sites:
            if "{" in site + app:
                continue
            found = sites.object(site, app, named=own)
            if found is not None and found.final:
                at = f"step.{name}.site" if found.cause is Cause.UNKNOWN else f"step.{name}"
                raise errors.BadFlow(message(found, now), hint=hint(found), at=at)
            if found is not None:
                notes.append(f"step {name}: {message(found, now)}")
    return notes


def _steps(flow: Flow, within: str = "") -> Iterator[tuple[str, Step]]:
    """Go through the steps of a workflow, and of those within it."""
    for name, step in flow.steps.items():
        if step.flow is not None:
            yield from _steps(step.flow, f"{within}{name}.")
        else:
            yield f"{within}{name}", step


def application(step: Step) -> tuple[str, bool]:
    """Name the application of a step, and say whether the step itself does."""
    named = step.application or str(step.recipe.get("app", ""))
    kinds = {"command": wish.COMMANDS, "call": wish.FUNCTIONS}
    return named or kinds.get(str(step.recipe.get("kind", "")), ""), bool(named)


def _ordered(root: Path) -> set[str]:
    """Return the sites that pools order pilots at."""
    found = set[str]()
    for name in pools.names(root):
        try:
            found.add(pools.read(root, name).site)
        except errors.ConfigError:
            # Who looks at pools hears of it.
            continue
    return found


def _known(one: Seen, orders: Collection[str]) -> Known:
    cause, since, by, words = _CAUSES.get(one.state), one.since, "", one.words
    if one.agent is not None and one.agent.draining and one.kind == "agent":
        told = one.agent.drain
        cause, words = cause or Cause.DRAINED, told.why
        by, since = told.by or "its administrator", told.since or since
    if one.drain is not None:
        cause, since, by, words = Cause.DRAINED, one.drain.at, one.drain.by, one.drain.why
    elif one.state == "silent":
        since, words = one.heard, ""
    # Pilots run anything, also where an agent runs applications alone.
    apps = one.agent.applications if one.agent is not None and one.kind == "agent" else None
    return Known(
        name=one.name, cause=cause, since=since, by=by, words=words,
        applications=None if one.pilots or one.name in orders else apps,
    )  # fmt: skip


def _unsure(db: Db, broker: BrokerView | None, now: float) -> str:
    """Say why there may be sites that are not known yet."""
    if forward_records.forwards(db):
        return _FORWARDS
    if broker is None:
        return ""
    if broker.trouble:
        return broker.trouble
    young = broker.since is None or now - broker.since < MISSING * USUAL_S
    return "the hub listens since a moment only" if young else ""
