"""What is observed of pools, what the store keeps of them, and the steps that are decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from pilotage.base import errors
from pilotage.pool import files
from pilotage.pool.efficiency import Meter
from pilotage.pool.files import Outside, Pool
from pilotage.pool.model import Reading
from pilotage.pool.outside import Told
from pilotage.pool.policy.model import Care, Hint, Need, Sight
from pilotage.store import Db

#: What is in the store of a pool that is paused.
PAUSED = "paused"
BY_PERSON = "paused by a person"


class Set(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person has set instead of what the file says."""

    minimum: int | None = None
    maximum: int | None = None
    pending: int | None = None
    #: Cores above which a person is asked; 0 means that all is allowed.
    ask_above: int | None = None

    def apply(self, pool: Pool) -> Pool:
        """Return the pool as it is to be."""
        given = {key: getattr(self, key) for key in self.__struct_fields__}
        return msgspec.structs.replace(
            pool, **{key: value for key, value in given.items() if value is not None}
        )


class Seen(msgspec.Struct, frozen=True):
    """What is seen of a pool at one moment."""

    sight: Sight
    reading: Reading
    #: Cores of queued jobs that such pilots could run.
    waiting: float = 0.0
    #: Pilots that the site still has room for.
    room: int = 1 << 30
    #: Cores that its quota leaves, over all pools there; nothing means any number.
    quota: float | None = None
    #: Why nothing may be asked of the site; empty if it may.
    closed: str = ""
    #: Pools that are alike to jobs are decided for together: the first of them, and what waits.
    group: str = ""
    hints: tuple[Hint, ...] = ()
    #: How the last pilot died.
    death: str = ""
    #: How busy its cores are.
    meter: Meter = Meter()


class Row(msgspec.Struct, frozen=True):
    """What the store keeps of a pool."""

    name: str
    demand: float = 0.0
    #: The controller's own.
    state: Any = None
    care: Care = Care()
    #: When a pilot last died.
    died: float = 0.0
    #: When it was looked at last.
    looked: float = 0.0
    seen: Seen | None = None
    words: str = ""
    asked: str = ""
    reason: str = ""
    changed: Set = Set()
    #: What was asked for from outside.
    told: Told | None = None


class Step(msgspec.Struct, frozen=True):
    """What shall be done to a pool, and why."""

    #: Cores that it shall provide.
    demand: float
    #: Why, in words.
    words: str
    state: Any
    care: Care
    #: Pilots to ask for, to call off before they come, and to drain.
    order: int = 0
    cancel: int = 0
    drain: int = 0
    #: Pilots without a job that have had none for long, which leave.
    release: int = 0
    #: Whether it is paused from now on, and what needs a person.
    asked: str = ""
    reason: str = ""
    #: Pilots that drain and are called back.
    recall: int = 0
    #: What to remember of how busy its cores are.
    meter: Meter = Meter()


def rows(db: Db) -> dict[str, Row]:
    """Read all pools that were ever steered."""
    found = {one[0]: _row(*one) for one in db.rows("pool_all")}
    for name, body in db.rows("outside_all"):
        if name in found:
            told = msgspec.json.decode(body, type=Told)
            found[name] = msgspec.structs.replace(found[name], told=told)
    return found


def said(db: Db, name: str) -> str:
    """Return what is said of most pilots of a pool that wait; empty if nothing is."""
    return str(db.value("pool_said", pool=name) or "")


def needs(db: Db) -> dict[str, Need]:
    """Read what is remembered of kinds of jobs."""
    found = db.rows("pool_needs")
    return {name: msgspec.json.decode(body, type=Need) for name, body in found}


def _row(
    name: str, demand: float, state: str, care: str, died: float, looked: float, seen: str,
    *rest: str,
) -> Row:  # fmt: skip
    words, asked, reason, changed = rest
    return Row(
        name, demand, msgspec.json.decode(state), _read(care, Care), died, looked,
        _read(seen, Seen) if seen else None, words, asked, reason, _read(changed, Set),
    )  # fmt: skip


def _read(body: str, kind: type[Any]) -> Any:  # noqa: ANN401 - of the kind
    """Read what an earlier version may have written; what cannot be read is as good as new."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError:
        return None if kind is Seen else kind()


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
