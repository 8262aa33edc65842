"""Sites as commands and the page see them: read from the store, and from the files beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from pilotage import errors
from pilotage.match.place import SITE
from pilotage.site import files
from pilotage.site.model import FACTORY
from pilotage.store import Db

#: What the hub writes of a site counts for so long, in seconds.
FRESH_S = 20.0


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A site, and what is known of it."""

    name: str
    batch: str = ""
    host: str = ""
    about: str = ""
    #: What is wrong, in words; empty if nothing is or nobody looked lately.
    trouble: str = ""
    #: Since when it is as it is; nothing if nobody knows.
    since: float | None = None
    #: Whether a hub looks after it now.
    kept: bool = False
    #: What a person asked of it: empty or `drain`.
    asked: str = ""
    #: Jobs there by state, and pilots that have come or wait.
    jobs: dict[str, int] = {}
    pilots: int = 0
    #: When the factory was heard of that feeds it, and what it said; nothing if none does.
    heard: float | None = None
    words: str = ""


def sites(db: Db, root: Path, now: float) -> list[Seen]:
    """List all sites that the project has files of."""
    rows = {row[1]: row for row in db.rows("site_all")}
    jobs: dict[str, dict[str, int]] = {}
    for mark, state, count in db.rows("site_counts"):
        jobs.setdefault(mark.removeprefix(SITE), {})[state] = count
    pilots = dict(db.rows("site_pilots"))
    fed = {site: (heard, words) for site, heard, words in db.rows("factory_all")}
    found = (
        _seen(root, name, rows.get(name), jobs.get(name, {}), pilots.get(name, 0), now)
        for name in files.names(root)
    )
    return [_fed(one, fed.get(one.name)) for one in found]


def _fed(one: Seen, told: tuple[float, str] | None) -> Seen:
    """Add what is known of the factory of a site."""
    if one.batch != FACTORY or told is None:
        return one
    return msgspec.structs.replace(one, heard=told[0], words=told[1])


def _seen(
    root: Path, name: str, row: tuple[Any, ...] | None, jobs: dict[str, int], pilots: int,
    now: float,
) -> Seen:  # fmt: skip
    try:
        site = files.read(root, name)
        known = Seen(
            name=name, batch=site.batch, host=site.host, about=site.about, jobs=jobs, pilots=pilots
        )
    except errors.ConfigError as error:
        known = Seen(name=name, trouble=str(error), jobs=jobs, pilots=pilots)
    if row is None:
        return known
    _, _, trouble, since, seen, _, asked = row
    kept = now - seen < FRESH_S
    return msgspec.structs.replace(
        known,
        since=since or None,
        kept=kept,
        asked=asked,
        trouble=known.trouble or (trouble if kept else ""),
    )
