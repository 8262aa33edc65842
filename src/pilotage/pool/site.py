"""The site of a pool: a file of the project, or a site with an agent."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from pilotage.base import errors
from pilotage.batch import files
from pilotage.batch.model import SiteSettings
from pilotage.edge.view import PilotSite

#: What stands for the batch system of a site whose agent has not said which it is.
AGENT = "agent"
#: Its agent says how many pilots may be there.
_ANY = 1 << 30


def read(root: Path, name: str, agents: Collection[str]) -> SiteSettings:
    """Return the site of a pool; raise `NotFound` for one that is neither a file nor an agent's."""
    if name in agents and name not in files.names(root):
        return SiteSettings(batch=AGENT, jobs=_ANY)
    try:
        return files.read(root, name)
    except errors.NotFound as error:
        known = ", ".join(sorted({*files.names(root), *agents})) or "none yet"
        hint = f"sites are {known}; `pilotage site add {name}` makes it"
        raise errors.NotFound(error.message, hint=hint) from None


def of(site: SiteSettings, agent: PilotSite | None) -> SiteSettings:
    """Return a site with the batch system that its agent reported."""
    if site.batch != AGENT or agent is None or not agent.batch:
        return site
    return msgspec.structs.replace(site, batch=agent.batch)
