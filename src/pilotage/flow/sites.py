"""Choice of a site for each task, and the check that sites accept the steps of a workflow."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from pilotage.base import errors, text
from pilotage.flow.model import Flow, Step
from pilotage.job.model import JobSpec, Workflow
from pilotage.match import expr, submission
from pilotage.match.sites import SiteCause, SiteView, hint, message
from pilotage.project.settings import Settings
from pilotage.rule.model import Rule
from pilotage.status import sites as site_view
from pilotage.store import Db

#: States of sites that may be chosen, the better ones first.
_GOOD = ("well", "unknown")
#: States of sites that accept no job now, for people.
_BAD = {
    "silent": "is silent",
    "trouble": "is in trouble",
    "draining": "takes no more jobs",
}
_MOST_TOLD = 5


class CandidateSite(msgspec.Struct, frozen=True):
    """A site that may be chosen."""

    name: str
    #: By its heartbeats; `unknown` without any.
    state: str = "unknown"
    #: Jobs there that are not at an end.
    live: int = 0
    batch: str = ""
    disk_free: int = 0

    @property
    def facts(self) -> dict[str, str | int]:
        """The names in requirements."""
        return {
            "site": self.name, "state": self.state, "jobs": self.live, "batch": self.batch,
            "disk": self.disk_free,
        }  # fmt: skip


class Choice(msgspec.Struct, frozen=True):
    """The chosen site, or the reason for none."""

    site: str = ""
    #: Why none.
    reason: str = ""


def choose(
    named: Sequence[str],
    requirements: str,
    known: Mapping[str, CandidateSite],
    tried: Collection[str] = (),
) -> Choice:
    """Choose a site; those that were `tried` come last, and not at all if there are others.

    A single site that is named is taken however it is: what is sent waits there.
    """
    sites = [known.get(name, CandidateSite(name)) for name in named or sorted(known)]
    if not sites:
        return Choice(reason="no site has reported yet")
    fit = [one for one in sites if _fits(one, requirements)]
    if not fit:
        return Choice(reason=f"none of {_names(sites)} is as `{requirements}` asks for")
    fresh = [one for one in fit if one.name not in tried] or fit
    if named and len(fresh) == 1:
        return Choice(fresh[0].name)
    good = [one for one in fresh if one.state in _GOOD]
    if not good:
        told = [f"{one.name} {_BAD.get(one.state, one.state)}" for one in fresh]
        return Choice(reason=_some(told, "; "))
    # Of two that are alike, the one that was named first: sorting keeps their order.
    return Choice(min(good, key=lambda one: (_GOOD.index(one.state), one.live)).name)


def _fits(site: CandidateSite, requirements: str) -> bool:
    return not requirements or expr.parse(requirements).holds(site.facts, {})


def _names(sites: Sequence[CandidateSite]) -> str:
    return _some([one.name for one in sites], ", ")


def _some(words: list[str], between: str) -> str:
    """Join words, but not very many."""
    more = len(words) - _MOST_TOLD
    told = [text.show(one) for one in words[:_MOST_TOLD]]
    return between.join([*told, f"and {more} more"] if more > 0 else told)


# -- whether sites accept steps --------------------------------------------------------------------


def check_flow(
    db: Db, root: Path, settings: Settings, flow: Flow, now: float, *, running: bool = True
) -> list[str]:
    """Refuse a workflow whose sites never accept its steps; return which steps will wait."""
    names = named(flow)
    if not names:
        return []
    return judge_flow(
        site_view.standing(db, root, settings, now, names, running=running), flow, now
    )


def check_rules(
    db: Db, root: Path, settings: Settings, rules: Mapping[str, Rule], now: float, *,
    running: bool = True,
) -> list[str]:  # fmt: skip
    """Refuse rules whose sites never accept their jobs or workflows; return which will wait."""
    flows = {
        name: msgspec.convert(one.spec.recipe.flow, Flow)
        for name, one in rules.items()
        if isinstance(one.spec.recipe, Workflow)
    }
    names = {one.spec.site for one in rules.values() if one.spec.site}
    names |= {site for flow in flows.values() for site in named(flow)}
    sites = (
        site_view.standing(db, root, settings, now, names, running=running)
        if names
        else SiteView({})
    )
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


def _judge_rule(sites: SiteView, spec: JobSpec, now: float) -> list[str]:
    found = sites.judge(spec)
    if found is not None and found.final:
        raise errors.BadRule(message(found, now), hint=hint(found), at="site")
    return [] if found is None else [message(found, now)]


def named(flow: Flow) -> set[str]:
    """Return the sites that the steps of a workflow name."""
    return {site for _, step in _steps(flow) for site in step.sites}


def judge_flow(sites: SiteView, flow: Flow, now: float) -> list[str]:
    """Refuse a workflow whose sites will never accept its steps; return which steps will wait.

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
                at = f"step.{name}.site" if found.cause is SiteCause.UNKNOWN else f"step.{name}"
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
    kinds = {"command": submission.COMMANDS, "call": submission.FUNCTIONS}
    return named or kinds.get(str(step.recipe.get("kind", "")), ""), bool(named)
