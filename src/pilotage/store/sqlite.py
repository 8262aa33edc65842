"""One connection to the store, with named queries, migrations and errors with hints."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from pilotage.base import errors

_HEAD = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@functools.cache
def load() -> dict[str, str]:
    """Read every query; the lines of comment under its name say what it is for."""
    found: dict[str, str] = {}
    for file in sorted(_folder(), key=lambda item: item[0]):
        if file[0][0].isdigit():
            continue
        parts = _HEAD.split(file[1])
        found.update(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))
    return found


@functools.cache
def migrations() -> tuple[tuple[int, str], ...]:
    """Read the numbered changes of the schema, in order."""
    return tuple(
        (int(name.split("_")[0]), text) for name, text in sorted(_folder()) if name[0].isdigit()
    )


def _folder() -> list[tuple[str, str]]:
    folder = Path(__file__).with_name("sql")
    return [(file.name, file.read_text(encoding="utf-8")) for file in folder.glob("*.sql")]


_BUSY_MS = 10_000
#: How long to wait while the store is opened: the last process to close it folds the whole
#: write-ahead log into it, and on a busy disk that takes longer than any transaction.
_OPENING_MS = 120_000
#: How long the write-ahead log gets before it is folded into the store: 10 000 pages.
_LOG_BYTES = 40 << 20
_FILLER_BYTES = 2 << 20
# FULL: a commit returns when the write-ahead log is on disk, not before. A long log is folded into
# the store seldom, so that a burst of events does not pay for it.
_PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "temp_store = MEMORY",
    "wal_autocheckpoint = 10000",
)

#: What SQLite says when the fault is the disk's or another process's, not ours.
_OUTSIDE: dict[type[apsw.Error], str] = {
    apsw.FullError: "the disk is full",
    apsw.IOError: "the disk does not take writes",
    apsw.ReadOnlyError: "it is read-only",
    apsw.CantOpenError: "it cannot be opened",
    apsw.BusyError: "another process has kept it locked for too long",
    apsw.PermissionsError: "it may not be accessed",
}
OUTSIDE = tuple(_OUTSIDE)
_HINT = "free space or correct the permissions; work then continues"


class Db:
    """A connection that speaks in named queries; one thread at a time may use it."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._queries = load()
        self.path = path

    def run(self, query: str, /, **values: Any) -> apsw.Cursor:  # noqa: ANN401 - SQL values
        """Start a named query; iterate over the result for its rows."""
        return self._connection.execute(self._queries[query], values)

    def rows(self, query: str, /, **values: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401 - SQL values
        """Return all rows of a named query."""
        return self._connection.execute(self._queries[query], values).fetchall()

    def row(self, query: str, /, **values: Any) -> tuple[Any, ...] | None:  # noqa: ANN401 - SQL values
        """Return the first row of a named query, if any."""
        return self._connection.execute(self._queries[query], values).fetchone()

    def value(self, query: str, /, **values: Any) -> Any:  # noqa: ANN401 - SQL values
        """Return the first column of the first row, or nothing."""
        row = self.row(query, **values)
        return None if row is None else row[0]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Db]:
        """Commit what is done inside, all or nothing, and only return when it is on disk."""
        with explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self
                self._connection.execute("COMMIT")
            finally:
                # Still in it: something went wrong, and it was not a full disk, which rolls back
                # by itself.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what is done inside if it raises, without losing the rest of the transaction."""
        self._connection.execute("SAVEPOINT step")
        good = False
        try:
            yield
            good = True
        finally:
            if self._connection.in_transaction:
                if not good:
                    self._connection.execute("ROLLBACK TO step")
                self._connection.execute("RELEASE step")

    def lengthen_log(self) -> None:
        """Make the write-ahead log as long as it gets, so that commits need not lengthen it.

        A commit that makes a file longer has its directory's metadata written, too: it takes twice
        as long.
        """
        log = self.path.with_name(f"{self.path.name}-wal")
        run = self._connection.execute
        with explained(self.path):
            if log.exists() and log.stat().st_size >= _LOG_BYTES:
                return
            run("PRAGMA synchronous = OFF")
            run("CREATE TABLE IF NOT EXISTS filler (body BLOB)")
            run("INSERT INTO filler VALUES (zeroblob(?))", (_FILLER_BYTES,))
            for number in range(_LOG_BYTES // _FILLER_BYTES):
                run("UPDATE filler SET body = zeroblob(?)", (_FILLER_BYTES - number % 2,))
            run("DROP TABLE filler")
            run("PRAGMA synchronous = FULL")
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn faults of the disk into `errors.StoreUnavailable`."""
    try:
        yield
    except OUTSIDE as error:
        why = next(text for kind, text in _OUTSIDE.items() if isinstance(error, kind))
        message = f"cannot use the store {path}: {why}"
        raise errors.StoreUnavailable(message, hint=_HINT) from error
    except apsw.NotADBError as error:
        message = f"{path} is not a Pilotage store"
        raise errors.ConfigError(message, hint="name the right project with --project") from error


def connect(path: Path, *, readonly: bool = False) -> Db:
    """Open the store, make it if need be, and bring its schema up to date."""
    flags = (
        apsw.SQLITE_OPEN_READONLY
        if readonly
        else (apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    )
    with explained(path):
        connection = apsw.Connection(str(path), flags=flags)
        connection.set_busy_timeout(_OPENING_MS)
        for pragma in _PRAGMAS:
            if not readonly:
                connection.execute(f"PRAGMA {pragma}")
        db = Db(connection, path)
        if not readonly:
            _migrate(connection, db)
        connection.set_busy_timeout(_BUSY_MS)
        return db


def _migrate(connection: apsw.Connection, db: Db) -> None:
    newest = migrations()[-1][0]
    if _version(connection) > newest:
        message = f"the store {db.path} was written by a newer Pilotage"
        raise errors.ConfigError(message, hint="upgrade Pilotage: pip install -U pilotage")
    if _version(connection) == newest:
        return
    with db.transaction():
        for number, text in migrations():
            if number > _version(connection):
                connection.execute(text)
                connection.execute(f"PRAGMA user_version = {number}")


def _version(connection: apsw.Connection) -> int:
    return int(connection.pragma("user_version"))
