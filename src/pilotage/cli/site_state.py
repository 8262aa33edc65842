"""How sites are, as far as it can be known without asking them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from pilotage import errors
from pilotage.cli.answer import Style
from pilotage.site import files
from pilotage.site.shell.ssh import Ssh
from pilotage.site.shell.words import Kind

if TYPE_CHECKING:
    from pilotage.hub.project import Project

_STYLES: dict[str, Style] = {
    "connected": "green", "here": "green", "not connected": "dim", "draining": "yellow",
}  # fmt: skip


class State(msgspec.Struct, frozen=True, kw_only=True):
    """How a site is."""

    #: Such as `connected`, `needs login` or `not answering`.
    word: str
    #: What is wrong, and what to do.
    trouble: str = ""
    #: Since when, if the hub knows.
    since: float | None = None
    #: What a person asked of it.
    asked: str = ""
    #: What is there of ours.
    jobs: int = 0
    pilots: int = 0

    @property
    def style(self) -> Style:
        """The colour of the word."""
        return _STYLES.get(self.word, "red")


async def look(project: Project, names: Sequence[str]) -> dict[str, State]:
    """Say how sites are; no connection is made."""
    found = await asyncio.gather(*(_connection(project, name) for name in names))
    return dict(zip(names, found, strict=True))


async def _connection(project: Project, name: str) -> State:
    try:
        site = files.read(project.root, name)
    except errors.ConfigError as error:
        return State(word="bad file", trouble=str(error))
    if not site.host:
        return State(word="here")
    shell = Ssh(name, site.host, project.state, settings=site.ssh_config)
    if await shell.alive():
        return State(word="connected")
    trouble = shell.nest.trouble()
    if trouble is None:
        return State(word="not connected")
    words = f"{trouble.message}: {trouble.hint}" if trouble.hint else trouble.message
    word = "needs login" if trouble.kind is Kind.LOGIN else "not answering"
    return State(word=word, trouble=words)
