"""Which site a task goes to: among those that may have it, by how they are and what they have.

Purely from what is known; a site that nobody has heard of may still be there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from pilotage.base import text
from pilotage.match import expr

#: The states of sites that a task may be sent to if there is a choice, the better ones first.
_GOOD = ("well", "unknown")
#: How a site is that takes no job now, for people.
_BAD = {
    "silent": "is silent",
    "trouble": "is in trouble",
    "draining": "takes no more jobs",
}
_MOST_TOLD = 5


class Site(msgspec.Struct, frozen=True):
    """A site, as far as anybody knows."""

    name: str
    #: As its heartbeats tell; `unknown` if nobody knows.
    state: str = "unknown"
    #: Jobs there that are not at an end.
    live: int = 0
    batch: str = ""
    disk_free: int = 0

    @property
    def facts(self) -> dict[str, str | int]:
        """What requirements may speak of."""
        return {
            "site": self.name, "state": self.state, "jobs": self.live, "batch": self.batch,
            "disk": self.disk_free,
        }  # fmt: skip


class Choice(msgspec.Struct, frozen=True):
    """The site, or why there is none now."""

    site: str = ""
    #: Why none.
    reason: str = ""


def choose(
    named: Sequence[str], requirements: str, known: Mapping[str, Site], tried: Collection[str] = ()
) -> Choice:
    """Choose a site; those that were `tried` come last, and not at all if there are others.

    A single site that is named is taken however it is: what is sent waits there.
    """
    sites = [known.get(name, Site(name)) for name in named or sorted(known)]
    if not sites:
        return Choice(reason="no site was heard of")
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


def _fits(site: Site, requirements: str) -> bool:
    return not requirements or expr.parse(requirements).holds(site.facts, {})


def _names(sites: Sequence[Site]) -> str:
    return _some([one.name for one in sites], ", ")


def _some(words: list[str], between: str) -> str:
    """Join words, but not very many."""
    more = len(words) - _MOST_TOLD
    told = [text.show(one) for one in words[:_MOST_TOLD]]
    return between.join([*told, f"and {more} more"] if more > 0 else told)
