"""How sites are, as far as it can be known without asking them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from pilotage import errors
from pilotage.cli.answer import Style
from pilotage.hub import places
from pilotage.hub.feed.fed import silence
from pilotage.hub.places import Seen
from pilotage.site import files
from pilotage.site.model import FACTORY
from pilotage.site.shell.ssh import Ssh
from pilotage.site.shell.words import Kind

if TYPE_CHECKING:
    from pilotage.hub.project import Project

_STYLES: dict[str, Style] = {
    "connected": "green", "here": "green", "fed": "green", "not connected": "dim",
    "not fed": "dim", "drained": "yellow",
}  # fmt: skip


class State(msgspec.Struct, frozen=True, kw_only=True):
    """How a site is."""

    seen: Seen
    #: Such as `connected`, `needs login` or `not answering`.
    word: str
    #: What is wrong, and what to do.
    trouble: str = ""

    @property
    def style(self) -> Style:
        """The colour of the word."""
        return _STYLES.get(self.word, "red")

    @property
    def jobs(self) -> int:
        """How many jobs are there."""
        return sum(self.seen.jobs.values())


def look(project: Project) -> dict[str, State]:
    """Say how sites are; no connection is made."""
    seen = places.sites(project.db, project.root, project.clock.now())
    return asyncio.run(_all(project, seen))


async def _all(project: Project, seen: list[Seen]) -> dict[str, State]:
    states = await asyncio.gather(*(_one(project, one) for one in seen))
    return {one.name: state for one, state in zip(seen, states, strict=True)}


async def _one(project: Project, seen: Seen) -> State:
    if seen.batch == FACTORY:
        word, trouble = _fed(seen, project.clock.now())
    else:
        word, trouble = _told(seen) if seen.kept else await _found(project, seen.name)
    if seen.asked == "drain" and not trouble:
        word = "drained"
    return State(seen=seen, word=word, trouble=trouble)


def _fed(seen: Seen, now: float) -> tuple[str, str]:
    """Say whether a factory was heard of lately."""
    words = silence(seen.heard, now)
    if not words:
        return "fed", seen.words
    return ("silent" if seen.heard else "not fed"), words


def _told(seen: Seen) -> tuple[str, str]:
    """Take the word of the hub that looks after the site."""
    if not seen.trouble:
        return "connected" if seen.host else "here", ""
    return "needs login" if "pilotage site login" in seen.trouble else "not answering", seen.trouble


async def _found(project: Project, name: str) -> tuple[str, str]:
    """Look whether there is a connection, and why there was none at the last try."""
    try:
        site = files.read(project.root, name)
    except errors.ConfigError as error:
        return "bad file", str(error)
    if not site.host:
        return "here", ""
    shell = Ssh(name, site.host, project.state, settings=site.ssh_config)
    if await shell.alive():
        return "connected", ""
    trouble = shell.nest.trouble()
    if trouble is None:
        return "not connected", ""
    words = f"{trouble.message}: {trouble.hint}" if trouble.hint else trouble.message
    return "needs login" if trouble.kind is Kind.LOGIN else "not answering", words
