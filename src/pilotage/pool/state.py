"""Observations, stored state and steps of pools."""

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

#: The stored value of a paused pool.
PAUSED = "paused"
BY_PERSON = "paused by a person"


class PoolOverrides(msgspec.Struct, frozen=True, omit_defaults=True):
    """Values that a person has set in place of those of the file."""

    minimum: int | None = None
    maximum: int | None = None
    pending: int | None = None
    #: Cores above which a person is asked; 0 means that all is allowed.
    ask_above: int | None = None

    def apply(self, pool: Pool) -> Pool:
        """Return the pool with these values."""
        given = {key: getattr(self, key) for key in self.__struct_fields__}
        return msgspec.structs.replace(
            pool, **{key: value for key, value in given.items() if value is not None}
        )


class PoolObservation(msgspec.Struct, frozen=True):
    """An observation of a pool."""

    sight: Sight
    reading: Reading
    #: Cores of queued jobs that such pilots could run.
    waiting: float = 0.0
    #: Pilots that the site still has room for.
    room: int = 1 << 30
    #: Cores that its quota leaves, over all pools there; None means no limit.
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


class PoolRow(msgspec.Struct, frozen=True):
    """The stored state of a pool."""

    name: str
    demand: float = 0.0
    #: The controller's own.
    state: Any = None
    care: Care = Care()
    #: When a pilot last died.
    died: float = 0.0
    #: When it was looked at last.
    looked: float = 0.0
    seen: PoolObservation | None = None
    words: str = ""
    asked: str = ""
    reason: str = ""
    changed: PoolOverrides = PoolOverrides()
    #: What was asked for from outside.
    told: Told | None = None


class PoolStep(msgspec.Struct, frozen=True):
    """Changes decided for a pool, and the reason."""

    #: Cores that it should provide.
    demand: float
    #: The reason as text.
    words: str
    state: Any
    care: Care
    #: Pilots to order, to cancel before they start, and to drain.
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


def rows(db: Db) -> dict[str, PoolRow]:
    """Read the stored state of all pools."""
    found = {one[0]: _row(*one) for one in db.rows("pool_all")}
    for name, body in db.rows("outside_all"):
        if name in found:
            told = msgspec.json.decode(body, type=Told)
            found[name] = msgspec.structs.replace(found[name], told=told)
    return found


def said(db: Db, name: str) -> str:
    """Return the most common status text of waiting pilots; may be empty."""
    return str(db.value("pool_said", pool=name) or "")


def needs(db: Db) -> dict[str, Need]:
    """Read what is remembered of kinds of jobs."""
    found = db.rows("pool_needs")
    return {name: msgspec.json.decode(body, type=Need) for name, body in found}


def _row(
    name: str, demand: float, state: str, care: str, died: float, looked: float, seen: str,
    *rest: str,
) -> PoolRow:  # fmt: skip
    words, asked, reason, changed = rest
    return PoolRow(
        name,
        demand,
        msgspec.json.decode(state),
        _read(care, Care),
        died,
        looked,
        _read(seen, PoolObservation) if seen else None,
        words,
        asked,
        reason,
        _read(changed, PoolOverrides),
    )


def _read(body: str, kind: type[Any]) -> Any:  # noqa: ANN401 - of the kind
    """Decode stored JSON; what cannot be decoded counts as absent."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError:
        return None if kind is PoolObservation else kind()


class Taken(msgspec.Struct, frozen=True):
    """The answer to an external demand."""

    #: Cores, within the bounds of the pool.
    demand: float
    #: A note for the caller; may be empty.
    words: str = ""


def tell(db: Db, root: Path, name: str, demand: float, words: str, by: str, now: float) -> Taken:
    """Set the external demand of a pool, in cores; it is durable once the transaction commits."""
    changed, body = db.row("outside_get", name=name) or ("{}", "")
    pool = msgspec.json.decode(changed, type=PoolOverrides).apply(files.read(root, name))
    if not isinstance(pool.control, Outside):
        kind = type(pool.control).__struct_config__.tag
        message = f"pool {name} has no external controller: `{kind}` decides for it"
        raise errors.Conflict(message, hint='its file needs `kind = "outside"` in `[control]`')
    taken = min(float(pool.maximum), max(float(pool.minimum), demand))
    told = Told(taken, words, by, now)
    if body:
        told = msgspec.json.decode(body, type=Told).then(taken, words, by, now)
    db.run("outside_put", name=name, told=msgspec.json.encode(told).decode())
    return Taken(taken, told.rival(pool.control.seconds, now))
