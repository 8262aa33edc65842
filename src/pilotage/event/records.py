"""Events in the store: the inbox of messages, and how far each source has come."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pilotage.base import text
from pilotage.event.file.model import Entry
from pilotage.event.model import Event, EventKind
from pilotage.store import Db

#: Where the other end of a move, or the file of a message, stands among an event's own fields.
_OTHER = "//other"
_AT_ONCE = 1000


class StoredEvent(msgspec.Struct, frozen=True):
    """An event with its number."""

    id: int
    event: Event


def add(db: Db, events: Sequence[Event], *, taken: bool) -> int:
    """Write events; return the number of the first."""
    first = int(db.value("event_last")) + 1
    db.run("event_add", first=first, rows=text.dump([row(one, taken=taken) for one in events]))
    return first


def row(event: Event, *, taken: bool) -> list[Any]:
    """Write an event as a row."""
    data = event.data
    if event.other:
        data = data | {_OTHER: text.store_path(event.other)}
    return [
        event.time, event.kind, text.store_path(event.subject), event.version,
        text.dump(data) if data else "{}", event.cause, int(taken),
    ]  # fmt: skip


def read(found: tuple[Any, ...]) -> StoredEvent:
    """Read a row."""
    number, time, kind, subject, version, data, cause = found
    facts = text.load(data)
    other = text.load_path(facts.pop(_OTHER, ""))
    return StoredEvent(
        number,
        Event(
            EventKind(kind),
            text.load_path(subject),
            time,
            version,
            other=other,
            data=facts,
            cause=cause,
        ),
    )


def waiting(db: Db) -> list[StoredEvent]:
    """Read events that were stored but whose jobs are not made yet."""
    return [read(found) for found in db.rows("event_waiting")]


def taken(db: Db, numbers: Sequence[int]) -> None:
    """Note that the jobs of these events are made."""
    db.run("event_taken", ids=text.dump(numbers))


def newest(db: Db, *, after: int = 0, kind: str = "*", most: int = 50) -> list[StoredEvent]:
    """Read the newest events, oldest first."""
    return [read(found) for found in db.rows("event_list", after=after, kind=kind, most=most)]


def cursor(db: Db, source: str) -> str | None:
    """Return the cursor of a source."""
    value = db.value("cursor_get", source=source)
    return None if value is None else str(value)


def advance(db: Db, source: str, value: str) -> None:
    """Remember how far a source has come."""
    db.run("cursor_set", source=source, value=value)


def forget(db: Db, before: float) -> list[str] | None:
    """Forget some events that no job refers to; return the files of messages to remove.

    Nothing is returned when no such event is left.
    """
    found = db.rows("event_purgeable", before=before, most=_AT_ONCE)
    if not found:
        return None
    db.run("event_purge", ids=text.dump([number for number, _, _ in found]))
    messages = [text.load(data) for _, kind, data in found if kind == EventKind.MESSAGE]
    return [text.load_path(facts[_OTHER]) for facts in messages if _OTHER in facts]


@dataclass(eq=False)
class StoredFiles:
    """The `file` table, read side."""

    _db: Db
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def listing(self, directory: str) -> dict[str, Entry]:
        """Return the rows of the entries of a directory by name."""
        with self._lock:
            rows = self._db.rows("file_listing", dir=text.store_path(directory))
        return {
            text.load_path(name): Entry(bool(is_dir), inode, size, mtime_ns)
            for name, is_dir, inode, size, mtime_ns in rows
        }

    def below(self, directory: str) -> list[str]:
        """Return the directories at or below one that have rows for entries."""
        with self._lock:
            rows = self._db.rows("file_dirs_below", dir=text.store_path(directory))
        return [text.load_path(row[0]) for row in rows]
