"""State of sites, from the store alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from pilotage.batch import files
from pilotage.batch.shell.ssh import SshShell
from pilotage.batch.shell.words import TroubleKind
from pilotage.cli.answer import Style
from pilotage.status import sites
from pilotage.status.sites import SiteList, SiteStatus

if TYPE_CHECKING:
    from pilotage.hub.project import Project

_STYLES: dict[str, Style] = {
    "connected": "green", "here": "green", "well": "green",
    "not connected": "dim", "unknown": "dim", "unheard": "dim",
    "drained": "yellow", "draining": "yellow", "not served": "yellow",
}  # fmt: skip


def look(project: Project) -> SiteList:
    """Return how all sites are; no connection is made."""
    running = project.running()
    found = sites.look(
        project.db, project.root, project.settings, project.clock.now(), running=running
    )
    return found._replace(sites=asyncio.run(_all(project, found.sites)))


def style(one: SiteStatus) -> Style:
    """Return the colour of the state of a site."""
    if one.conflict:
        return "red"
    found = _STYLES.get(one.state, "red")
    warned = one.agent is not None and one.agent.warned
    return "yellow" if warned and found == "green" else found


async def _all(project: Project, seen: Iterable[SiteStatus]) -> list[SiteStatus]:
    return list(await asyncio.gather(*(_one(project, one) for one in seen)))


async def _one(project: Project, one: SiteStatus) -> SiteStatus:
    """Check for a connection to a site without a hub, and return why there is none."""
    if one.state != "not connected" or one.kept:
        return one
    site = files.read(project.root, one.name)
    shell = SshShell(one.name, site.host, project.state, settings=site.ssh_config)
    if await shell.alive():
        return msgspec.structs.replace(one, state="connected")
    trouble = shell.files.trouble()
    if trouble is None:
        return one
    words = f"{trouble.message}: {trouble.hint}" if trouble.hint else trouble.message
    state = "needs login" if trouble.kind is TroubleKind.LOGIN else "not answering"
    return msgspec.structs.replace(one, state=state, words=words)
