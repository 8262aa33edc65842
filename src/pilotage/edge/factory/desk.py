"""The desk of a hub at which factories report, and hear which pilots are wanted.

A report is all that a factory has for a site, and reports are numbered: whatever is not in the
last one the factory does not have. So nothing needs to be remembered of what was said before, and
an answer that is lost is simply given again.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from pilotage.base import crash, errors, text, units
from pilotage.base.owner import me
from pilotage.batch import files, records
from pilotage.batch.model import FACTORY
from pilotage.batch.wish import Wish
from pilotage.edge.factory.wire import (
    MOST_WANTED,
    OVER,
    FactoryEnrol,
    FactoryOrder,
    FactoryOrders,
    FactoryPilot,
    FactoryReport,
    FactorySecret,
    FactorySecrets,
    FactorySite,
    FactoryWant,
)
from pilotage.pilot.model import State
from pilotage.project import tokens
from pilotage.store import Db

#: Where a test can kill the hub.
POINTS = ("desk.heard", "desk.enrolled")
#: As long as a factory was heard of within this time, no other one feeds its site, in seconds.
ALONE_S = 300.0
#: For how long a pilot that waits in a batch queue may still enrol, in seconds.
_WEEK_S = 7 * 86400.0
#: How long a pilot that has left may take until its batch job is over, in seconds.
_TIDY_S = 60.0
#: Secrets that are kept of one pilot: an answer may be lost, and come late.
_SPARE = 3
_AWAITED = frozenset({State.REQUESTED, State.SUBMITTED})


class _Pilot(msgspec.Struct):
    """A pilot of the site that has not ended."""

    number: int
    pool: str
    state: State
    reason: str
    asked: str
    wish: str


def sync(
    db: Db, root: Path, grant: tokens.Grant, report: FactoryReport, now: float
) -> FactoryOrders:
    """Hear a report, and say what is wanted; all of it counts, or nothing."""
    names = [one.site for one in report.sites]
    if len(set(names)) != len(names):
        raise errors.Conflict("a site is there twice", hint="one report has each site once")
    gone = {
        one.site
        for one in report.sites
        if one.pilots and grant.feeds(one.site) and not _is_fed(root, one.site)
    }
    for name in names:
        _admit(root, grant, name, gone)
    orders = tuple(
        _left(db, one) if one.site in gone else _site(db, report, one, now) for one in report.sites
    )
    crash.point("desk.heard")
    return FactoryOrders(orders)


def _is_fed(root: Path, name: str) -> bool:
    return name in files.names(root) and files.read(root, name).batch == FACTORY


def _admit(root: Path, grant: tokens.Grant, name: str, gone: Collection[str] = ()) -> None:
    """Refuse whoever may not feed a site; of one that is gone, the rest may be told."""
    if not grant.feeds(name):
        hint = f"`pilotage token new factory --site {name}` makes one that may"
        raise errors.Denied(f"this token does not feed the site {name}", hint=hint)
    if name not in gone and not _is_fed(root, name):
        message = f"there is no site {name} that factories feed"
        hint = f'`batch = "{FACTORY}"` in `sites/{name}.toml` of the hub makes it one'
        raise errors.NotFound(message, hint=hint)


def _left(db: Db, told: FactorySite) -> FactoryOrder:
    """Say what becomes of the rest at a site that factories feed no more: what has come may stay.

    Were it refused, its factory would tell of it again and again, and get no further.
    """
    come = {row[0] for row in db.rows("factory_pilots", site=told.site) if row[2] not in _AWAITED}
    over = {one.pilot for one in told.pilots if one.state in OVER}
    off = tuple(one.pilot for one in told.pilots if one.pilot not in over | come)
    return FactoryOrder(told.site, (), off, tuple(sorted(over)))


def _site(db: Db, report: FactoryReport, told: FactorySite, now: float) -> FactoryOrder:
    _take_turn(db, report, told, now)
    live = {row[0]: _Pilot(*row) for row in db.rows("factory_pilots", site=told.site)}
    off = _hear(db, told, live, now)
    for one in told.pilots:
        live.pop(one.pilot, None)
    wanted = _settle(db, told, live, now)
    if records.asked(db, told.site) == "drain":
        wanted = []
    heard = tuple(one.pilot for one in told.pilots if one.state in OVER)
    return FactoryOrder(told.site, tuple(wanted), tuple(off), heard)


def _hear(db: Db, told: FactorySite, live: dict[int, _Pilot], now: float) -> list[int]:
    """Write down what became of pilots; return those that nobody wants any more."""
    off, unknown = [], []
    news: dict[tuple[str, str], list[int]] = {}
    for one in told.pilots:
        known = live.get(one.pilot)
        if one.state in OVER:
            if known is not None:
                _end(db, known, one, now)
        elif known is None:
            unknown.append(one.pilot)
        elif known.state in _AWAITED and known.asked:
            off.append(one.pilot)
        elif known.state in _AWAITED:
            _follow(known, one, news)
    for (query, words), ids in news.items():
        db.run(query, ids=text.dump(ids), reason=words)
    return off + _useless(db, told.site, unknown, now)


def _useless(db: Db, site: str, numbers: list[int], now: float) -> list[int]:
    """Choose those that nobody waits for: one that is lost may come back, one that left tidies."""
    if not numbers:
        return []
    past = db.rows("factory_past", site=site, ids=text.dump(numbers))
    spared = {
        number for number, state, ended in past if state == State.LOST or now - ended < _TIDY_S
    }
    return [number for number in numbers if number not in spared]


def _settle(
    db: Db, told: FactorySite, rest: dict[int, _Pilot], now: float
) -> list[FactoryWant]:  # fmt: skip
    """Conclude what can be of pilots that the factory does not have; return those it shall have."""
    wanted: list[FactoryWant] = []
    words = _plain(told.words)
    news = []
    for number, known in rest.items():
        if known.state == State.SUBMITTED:
            _never(db, known, State.FAILED, "its factory does not know it any more", now)
        elif known.state == State.REQUESTED and known.asked:
            _never(db, known, State.DOWN, "called off before it was submitted", now)
        elif known.state == State.REQUESTED and len(wanted) < MOST_WANTED:
            wanted.append(FactoryWant(number, msgspec.json.decode(known.wish, type=Wish)))
            if words != known.reason:
                news.append(number)
    db.run("pilot_say", ids=text.dump(news), reason=words)
    return wanted


def _take_turn(db: Db, report: FactoryReport, told: FactorySite, now: float) -> None:
    """Note that a factory was heard of; refuse what is older than what was heard before."""
    row = db.row("factory_get", site=told.site)
    # A clock that was wrong, or a factory whose store was put back, is nothing for ever.
    if row is not None and abs(now - row[2]) >= ALONE_S:
        row = None
    if row is not None and row[0] == report.factory and report.turn <= row[1]:
        message = f"report {row[1]} came before this one, which is {report.turn}"
        raise errors.Conflict(message, hint="report anew")
    if row is not None and row[0] != report.factory:
        ago = units.for_people(max(0.0, now - row[2]))
        message = f"another factory feeds the site {told.site}, and was heard of {ago} ago"
        hint = f"give each a site of its own, or stop that one for {units.for_people(ALONE_S)}"
        raise errors.Conflict(message, hint=hint)
    words = _plain(told.words)
    db.run(
        "factory_put", site=told.site, name=report.factory, turn=report.turn, now=now, words=words
    )


def _follow(known: _Pilot, one: FactoryPilot, news: dict[tuple[str, str], list[int]]) -> None:
    """Note how far a pilot is that has not come, if that is new."""
    words = _plain(one.words)
    query = "pilot_say" if one.state == "waits" else "pilot_queued"
    moved = query == "pilot_queued" and known.state != State.SUBMITTED
    if moved or words != known.reason:
        news.setdefault((query, words), []).append(one.pilot)


def _plain(words: str) -> str:
    """Make the words of a factory harmless; they mostly are."""
    return words if words.isprintable() else text.show(words)


def _end(db: Db, known: _Pilot, one: FactoryPilot, now: float) -> None:
    """End a pilot that never came; of one that did, keep the word until it can be acted on."""
    words = _plain(one.words)
    if known.state in _AWAITED:
        state = State.DOWN if one.state == "off" or known.asked else State.FAILED
        _never(db, known, state, words, now)
    else:
        db.run("factory_end_add", pilot=known.number, words=words)


def _never(db: Db, known: _Pilot, state: State, words: str, now: float) -> None:
    db.run("pilot_never", id=known.number, state=state, reason=words, now=now)


def enrol(
    db: Db, root: Path, grant: tokens.Grant, asked: FactoryEnrol, now: float
) -> FactorySecrets:  # fmt: skip
    """Make a secret for each pilot that is still wanted; it counts once, and for that pilot."""
    _admit(root, grant, asked.site)
    made = []
    for number, pool in db.rows("factory_some", site=asked.site, ids=text.dump(asked.pilots)):
        secret, _ = tokens.mint(
            db, tokens.Scope.ENROL, me(), now=now, lifetime=_WEEK_S, pool=pool,
            site=asked.site, label=f"pilot {number}", uses=1, pilot=number,
        )  # fmt: skip
        db.run("token_spare", pilot=number, most=_SPARE)
        made.append(FactorySecret(number, secret))
    crash.point("desk.enrolled")
    return FactorySecrets(tuple(made))
