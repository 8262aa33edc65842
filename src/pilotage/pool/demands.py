"""What is asked of pools from outside: by `pilotage pool run`, by hand, or by another program."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pilotage.base import errors
from pilotage.pool import files
from pilotage.pool.files import Outside
from pilotage.pool.outside import Told
from pilotage.pool.reading import Set
from pilotage.store import Db


class Taken(msgspec.Struct, frozen=True):
    """What becomes of a demand."""

    #: Cores, within the bounds of the pool.
    demand: float
    #: What whoever asked should know; empty if there is nothing.
    words: str = ""


def tell(db: Db, root: Path, name: str, demand: float, words: str, by: str, now: float) -> Taken:
    """Ask a pool for so many cores; it is safe once the transaction is."""
    changed, body = db.row("outside_get", name=name) or ("{}", "")
    pool = msgspec.json.decode(changed, type=Set).apply(files.read(root, name))
    if not isinstance(pool.control, Outside):
        kind = type(pool.control).__struct_config__.tag
        message = f"pool {name} is not steered from outside: `{kind}` decides for it"
        raise errors.Conflict(message, hint='its file needs `kind = "outside"` in `[control]`')
    taken = min(float(pool.maximum), max(float(pool.minimum), demand))
    told = Told(taken, words, by, now)
    if body:
        told = msgspec.json.decode(body, type=Told).then(taken, words, by, now)
    db.run("outside_put", name=name, told=msgspec.json.encode(told).decode())
    return Taken(taken, told.rival(pool.control.seconds, now))
