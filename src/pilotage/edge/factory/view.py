"""The hubs that a factory feeds, as commands see them: read from the store and from their files."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pilotage.base import errors
from pilotage.batch import files as sites
from pilotage.batch.model import FACTORY
from pilotage.edge.factory import files
from pilotage.edge.factory.fed import silence
from pilotage.store import Db

#: A hub that was heard of within this time, beside three intervals, is well, in seconds.
_FRESH_S = 10.0


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """A hub, and what is known of it."""

    name: str
    url: str = ""
    about: str = ""
    #: `fed`, `away`, `not fed` or `bad file`.
    state: str
    #: What is wrong, or why it gets no more.
    trouble: str = ""
    #: When it answered last.
    heard: float | None = None
    #: Pilots that it wants beyond those that it has, that wait in the batch queue, and that run.
    wanted: int = 0
    waiting: int = 0
    running: int = 0
    #: Pilots that are over, and of whose end it has not heard.
    untold: int = 0
    #: Cores that it has, and may have.
    cores: int = 0
    maximum: int = 0
    pending: int = 0


def hubs(db: Db, root: Path, now: float) -> list[Look]:
    """List all hubs that a factory has files of."""
    rows = {row[0]: row[1:] for row in db.rows("fed_all")}
    counts: dict[str, dict[str, tuple[int, int]]] = {}
    for hub, state, count, cores in db.rows("guest_counts"):
        counts.setdefault(hub, {})[state] = (count, cores)
    return [
        _look(root, name, rows.get(name), counts.get(name, {}), now) for name in files.names(root)
    ]


def _look(
    root: Path, name: str, row: tuple[float, str, int, str] | None,
    counts: dict[str, tuple[int, int]], now: float,
) -> Look:  # fmt: skip
    def many(*states: str) -> int:
        return sum(counts.get(one, (0, 0))[0] for one in states)

    heard, trouble, wanted, words = row or (0.0, "", 0, "")
    live = ("waits", "submitted", "running")
    look = Look(
        name=name, state="bad file", heard=heard or None, wanted=wanted,
        waiting=many("waits", "submitted"), running=many("running"), untold=many("off", "ended"),
        cores=sum(counts.get(one, (0, 0))[1] for one in live),
    )  # fmt: skip
    try:
        hub = files.read(root, name)
    except errors.PilotageError as error:
        return msgspec.structs.replace(look, trouble=str(error))
    fresh = now - heard < 3 * hub.seconds + _FRESH_S
    state = "away" if trouble else "fed" if fresh else "not fed"
    return msgspec.structs.replace(
        look, state=state, trouble=trouble or words, url=hub.url, about=hub.about,
        maximum=hub.maximum, pending=hub.pending,
    )  # fmt: skip


def factory(db: Db, root: Path, site: str, now: float) -> str:
    """Say how it goes with the factory of a site of this hub; empty if it has none."""
    try:
        if sites.read(root, site).batch != FACTORY:
            return ""
    except (errors.NotFound, errors.ConfigError):
        return ""
    fed = {name: (heard, words) for name, heard, words in db.rows("factory_all")}
    heard, words = fed.get(site, (None, ""))
    return silence(heard, now) or ": ".join(part for part in ("heard of just now", words) if part)
