"""Whether the site that a job names takes it: decided once, for every source of work.

Facts about sites come in, an `Objection` goes out; `message` and `hint` put it into words.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import assert_never

import msgspec

from pilotage.base import errors, units
from pilotage.job.model import App, JobSpec, Workflow
from pilotage.match import submission

#: Names that a hint lists at most.
_FEW = 8
_LIST = "`pilotage site ls` lists the sites"


class SiteCause(StrEnum):
    """A reason why a site does not take a job."""

    #: There is no such site.
    UNKNOWN = "unknown"
    #: It has not reported yet.
    UNHEARD = "unheard"
    #: No pilot is there, and nothing else serves it.
    UNSERVED = "unserved"
    #: It has stopped reporting.
    SILENT = "silent"
    #: It reports, but cannot work: its batch system or the connection to it fails.
    TROUBLE = "trouble"
    #: A person asked that it is given nothing.
    DRAINED = "drained"
    #: It runs registered applications only, and the job is none.
    COMMAND = "command"
    #: It has no such application.
    APPLICATION = "application"


#: A job that is refused for these: waiting would not help.
_FINAL = frozenset({SiteCause.UNKNOWN, SiteCause.COMMAND, SiteCause.APPLICATION})


class SiteLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a site."""

    name: str
    #: What keeps it from taking any job; nothing if it takes jobs.
    cause: SiteCause | None = None
    #: Since when that is so.
    since: float | None = None
    #: Who asked for it.
    by: str = ""
    #: The reason as given by the person or the check.
    words: str = ""
    #: Applications that it runs; nothing means that it runs any program.
    applications: tuple[str, ...] | None = None


class Objection(msgspec.Struct, frozen=True, kw_only=True):
    """Why a site does not take a job now."""

    cause: SiteCause
    site: str
    since: float | None = None
    by: str = ""
    words: str = ""
    #: The application that was asked for.
    application: str = ""
    #: The name that was probably meant, and all that there are.
    nearest: str = ""
    known: tuple[str, ...] = ()

    @property
    def final(self) -> bool:
        """Whether the problem is permanent."""
        return self.cause in _FINAL


class SiteView(msgspec.Struct, frozen=True):
    """All sites that are known."""

    known: Mapping[str, SiteLimits]
    #: Why there may be others that have not reported yet; empty if there are none.
    unsure: str = ""

    def judge(self, spec: JobSpec) -> Objection | None:
        """Return why the site that a job names does not take it; nothing if it does."""
        if not spec.site or isinstance(spec.recipe, Workflow):
            return None
        own = isinstance(spec.recipe, App)
        return self.object(spec.site, submission.application(spec.recipe), named=own)

    def object(self, name: str, app: str, *, named: bool) -> Objection | None:
        """Return why a site does not take a job that runs an application.

        Unless it is `named`, the application is one that takes programs or functions.
        """
        site = self.known.get(name)
        if site is None:
            if self.unsure:
                return Objection(cause=SiteCause.UNHEARD, site=name, words=self.unsure)
            names = tuple(sorted(self.known))
            return Objection(
                cause=SiteCause.UNKNOWN, site=name, nearest=_nearest(name, names), known=names
            )
        there = site.applications
        if there is not None and app not in there:
            return Objection(
                cause=SiteCause.APPLICATION if named else SiteCause.COMMAND,
                site=name, application=app, nearest=_nearest(app, there), known=there,
            )  # fmt: skip
        if site.cause is None:
            return None
        return Objection(
            cause=site.cause, site=name, since=site.since, by=site.by, words=site.words
        )

    def check(self, spec: JobSpec, now: float) -> list[str]:
        """Refuse a job that its site will never take; return what to tell of one that waits."""
        found = self.judge(spec)
        if found is None:
            return []
        if found.final:
            raise refusal(found, now)
        return [message(found, now)]


def offering(name: str, applications: tuple[str, ...] | None) -> SiteView:
    """Return the report of the agent of one site; no applications mean that there is none."""
    if applications is None:
        return SiteView({}, "no heartbeat of it has come")
    return SiteView({name: SiteLimits(name=name, applications=applications)})


def refusal(found: Objection, now: float) -> errors.PilotageError:
    """Make the error with which a job is refused."""
    kind = errors.Denied if found.cause is SiteCause.COMMAND else errors.NotFound
    return kind(message(found, now), hint=hint(found))


def sentence(found: Objection, now: float) -> str:
    """Return why a site does not take a job, and what a person can do."""
    return f"{message(found, now)}; {hint(found)}"


def message(found: Objection, now: float) -> str:
    """Return why a site does not take a job."""
    said = _said(found, now)
    return f"{said}: {found.words}" if found.words else said


def _said(found: Objection, now: float) -> str:
    site, since = f"site `{found.site}`", _since(found.since, now)
    match found.cause:
        case SiteCause.UNKNOWN:
            return f"there is no {site}"
        case SiteCause.UNHEARD:
            return f"no report from {site} yet"
        case SiteCause.UNSERVED:
            return f"no pilot is at {site}{since}"
        case SiteCause.SILENT:
            return f"{site} is silent{since}"
        case SiteCause.TROUBLE:
            return f"{site} is in trouble{since}"
        case SiteCause.DRAINED:
            return f"{site} is drained{f' by {found.by}' if found.by else ''}{since}"
        case SiteCause.COMMAND:
            return f"{site} runs only applications that its administrator registered"
        case SiteCause.APPLICATION:
            return f"{site} has no application `{found.application}`"
        case _:
            assert_never(found.cause)


def hint(found: Objection) -> str:
    """Return what a person can do."""
    match found.cause:
        case SiteCause.UNKNOWN:
            return f"did you mean `{found.nearest}`? {_LIST}" if found.nearest else _LIST
        case SiteCause.COMMAND:
            return f"name one as `app`: {_names(found.known)}"
        case SiteCause.APPLICATION:
            near = f"did you mean `{found.nearest}`? " if found.nearest else ""
            return f"{near}it has {_names(found.known)}"
        case SiteCause.DRAINED if found.by:
            return f"`pilotage site resume {found.site}` gives it work again"
        case _:
            return f"`pilotage site check {found.site}` looks at it"


def _since(when: float | None, now: float) -> str:
    if not when:
        return ""
    local = datetime.fromtimestamp(when, UTC).astimezone()
    return f" since {local:%Y-%m-%d %H:%M:%S} ({units.for_people(max(0.0, now - when))})"


def _names(names: Iterable[str]) -> str:
    some = [f"`{name}`" for name in sorted(names)]
    more = f" and {len(some) - _FEW} more" if len(some) > _FEW else ""
    return ", ".join(some[:_FEW]) + more if some else "none"


def _nearest(word: str, names: Iterable[str]) -> str:
    found = difflib.get_close_matches(word, list(names), n=1, cutoff=0.6)
    return found[0] if found else ""
