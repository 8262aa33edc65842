"""Several files, one job: files of a set are kept until the set is complete."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from pilotage.base import text
from pilotage.event import records
from pilotage.event.model import Event
from pilotage.job import template
from pilotage.rule import firing
from pilotage.rule.model import Gather
from pilotage.store import Db


class Arrival(msgspec.Struct, frozen=True):
    """A file of a set has come."""

    ready: firing.Ready
    gather: Gather
    event: Event
    groups: dict[str, str]
    #: Which set, and which of its files.
    set_key: str
    item: str


def arrival(ready: firing.Ready, gather: Gather, event: Event, groups: dict[str, str]) -> Arrival:
    """Say to which set a file belongs."""
    known = template.keywords(firing.binding(event, groups, {}), ready.base)
    set_key = template.render(gather.by, known) if gather.by else ""
    item = _plain(template.render(gather.item, known)) if gather.item else event.subject
    return Arrival(ready, gather, event, groups, set_key, item)


def _plain(item: str) -> str:
    """Write `007` as `7`: file names pad their numbers, ranges do not."""
    return str(int(item)) if item.isdecimal() and item.isascii() else item


def complete(gather: Gather, items: list[str]) -> bool:
    """Say whether a set is complete."""
    if gather.values:
        return {_plain(value) for value in gather.values} <= set(items)
    return len(items) >= (gather.count or 1)


def _least(gather: Gather) -> int:
    """Say how many files a complete set has at least."""
    return len({_plain(value) for value in gather.values}) or gather.count or 1


def note(db: Db, one: Arrival, when: Callable[[Arrival], firing.Circumstance]) -> None:
    """Keep a file of a set, and make the job if the set is complete; `when` says how it fires."""
    if one.gather.values and one.item not in map(_plain, one.gather.values):
        return
    rule = one.ready.rule.name
    set_key, item = text.store_path(one.set_key), text.store_path(one.item)
    db.run(
        "gathered_put", rule=rule, set_key=set_key, item=item,
        path=text.store_path(one.event.subject), event=text.dump(one.event),
    )  # fmt: skip
    # Counting is cheap; reading all files of a set for each that comes is not, where it is large.
    if int(db.value("gathered_count", rule=rule, set_key=set_key)) < _least(one.gather):
        return
    members = db.rows("gathered_list", rule=rule, set_key=set_key)
    if not complete(one.gather, [text.load_path(row[0]) for row in members]):
        return
    _fire(db, one, members, when(one))
    db.run("gathered_drop", rule=rule, set_key=set_key)


def _fire(db: Db, one: Arrival, members: list[tuple[Any, ...]], when: firing.Circumstance) -> None:
    events = [msgspec.convert(text.load(row[2]), Event) for row in members]
    versions = "\0".join(f"{event.subject}\0{event.version}" for event in events)
    digest = hashlib.blake2b(versions.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    # The set, not its last file, is what must not fire twice.
    whole = msgspec.structs.replace(one.event, subject=one.set_key, version=digest)
    number = records.add(db, [one.event], taken=True)
    paths = tuple(sorted(event.subject for event in events))
    rows = firing.rows(one.ready, whole, one.groups, number, when, paths)
    firing.add(db, firing.encode(rows), event=0, now=when.now)
