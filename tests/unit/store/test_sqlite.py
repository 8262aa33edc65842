"""The store: its schema through all its versions, transactions, and whom it lets in."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from pilotage.base import errors
from pilotage.store import Db, connect, sqlite

VERSIONS = [number for number, _ in sqlite.migrations()]


def shape(db: Db) -> list[tuple[Any, ...]]:
    found = db._connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY 2")
    return found.fetchall()


def version(db: Db) -> int:
    return int(db._connection.pragma("user_version"))


def put(db: Db, source: str, value: str = "1") -> str:
    db.run("cursor_set", source=source, value=value)
    return source


def get(db: Db, source: str) -> Any:
    return db.value("cursor_get", source=source)


# -- the schema ----------------------------------------------------------------------------------


def test_migrations_are_numbered_from_one_without_a_gap():
    assert list(range(1, len(VERSIONS) + 1)) == VERSIONS


def test_a_fresh_store_is_of_the_newest_version(tmp_path):
    db = connect(tmp_path / "store.db")
    assert version(db) == VERSIONS[-1]
    tables = {row[1] for row in shape(db) if row[0] == "table"}
    assert {"job", "attempt", "journal", "event", "file", "rule", "cursor"} <= tables
    db.close()


@pytest.mark.parametrize("old", [0, *VERSIONS])
def test_a_store_of_any_version_becomes_what_a_fresh_one_is(tmp_path, old):
    before = apsw.Connection(str(tmp_path / "old.db"))
    for number, text in sqlite.migrations():
        if number <= old:
            before.execute(text)
    before.execute(f"PRAGMA user_version = {old}")
    before.close()
    db, fresh = connect(tmp_path / "old.db"), connect(tmp_path / "fresh.db")
    assert version(db) == VERSIONS[-1]
    assert shape(db) == shape(fresh)
    db.close()
    fresh.close()


def test_a_store_that_is_opened_again_keeps_what_it_has(tmp_path):
    for value in ("1", "2"):
        db = connect(tmp_path / "store.db")
        assert get(db, "x") == (None if value == "1" else "1")
        put(db, "x", value)
        db.close()


def test_a_store_that_another_process_folds_its_log_into_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "_BUSY_MS", 1)
    path = tmp_path / "store.db"
    connect(path).close()
    other = apsw.Connection(str(path))
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN IMMEDIATE")
    opened: list[Db] = []
    opening = threading.Thread(target=lambda: opened.append(connect(path)))
    opening.start()
    opening.join(0.2)
    assert not opened
    other.close()
    opening.join(60)
    put(opened[0], "x", "1")
    opened[0].close()


def test_a_migration_that_fails_leaves_the_store_as_it_was(tmp_path, monkeypatch):
    connect(tmp_path / "store.db").close()
    broken = "CREATE TABLE more (id INTEGER) STRICT; CREATE TABLE job (id INTEGER) STRICT;"
    newer = (*sqlite.migrations(), (VERSIONS[-1] + 1, broken))
    monkeypatch.setattr(sqlite, "migrations", lambda: newer)
    with pytest.raises(apsw.SQLError, match="already exists"):
        connect(tmp_path / "store.db")
    monkeypatch.undo()
    db = connect(tmp_path / "store.db")
    assert version(db) == VERSIONS[-1]
    assert "more" not in {row[1] for row in shape(db)}
    db.close()


def test_a_store_of_a_newer_pilotage_is_left_alone(tmp_path):
    connection = apsw.Connection(str(tmp_path / "store.db"))
    connection.execute(f"PRAGMA user_version = {VERSIONS[-1] + 1}")
    connection.close()
    with pytest.raises(errors.ConfigError, match="newer Pilotage") as caught:
        connect(tmp_path / "store.db")
    assert "upgrade" in caught.value.hint


def test_every_table_is_strict(tmp_path):
    db = connect(tmp_path / "store.db")
    listed = db._connection.execute("PRAGMA table_list").fetchall()
    loose = [row[1] for row in listed if not str(row[1]).startswith("sqlite_") and not row[5]]
    assert loose == []
    db.close()


# -- whom it lets in -----------------------------------------------------------------------------


def test_a_commit_is_on_disk_when_it_returns(tmp_path):
    db = connect(tmp_path / "store.db")
    assert db._connection.pragma("journal_mode") == "wal"
    assert db._connection.pragma("synchronous") == 2  # FULL
    db.close()


def test_a_reader_reads_and_cannot_write(tmp_path):
    db = connect(tmp_path / "store.db")
    put(db, "x")
    reader = connect(tmp_path / "store.db", readonly=True)
    assert get(reader, "x") == "1"
    with pytest.raises(errors.StoreUnavailable, match="read-only"), reader.transaction():
        put(reader, "x", "2")
    reader.close()
    db.close()


def test_a_store_that_is_not_there_cannot_be_read(tmp_path):
    with pytest.raises(errors.StoreUnavailable, match="cannot be opened"):
        connect(tmp_path / "none.db", readonly=True)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_store_is_named(tmp_path):
    file = tmp_path / "store.db"
    file.write_text("Dear diary, " * 100)
    with pytest.raises(errors.ConfigError, match="is not a Pilotage store"):
        connect(file)
    assert file.read_text().startswith("Dear diary")


@pytest.mark.parametrize("fault", sqlite.OUTSIDE)
def test_faults_of_the_disk_are_explained_and_may_pass(fault):
    told = pytest.raises(errors.StoreUnavailable, match="cannot use the store /p: ")
    with told as caught, sqlite.explained(Path("/p")):
        raise fault
    assert caught.value.retryable
    assert caught.value.hint


# -- all or nothing ------------------------------------------------------------------------------


@pytest.fixture
def db(tmp_path):
    opened = connect(tmp_path / "store.db")
    yield opened
    opened.close()


def test_a_transaction_that_raises_leaves_nothing(db):
    with pytest.raises(KeyError), db.transaction():
        raise KeyError(put(db, "x"))
    assert get(db, "x") is None
    with db.transaction():
        put(db, "y")
    assert get(db, "y") == "1"


def test_a_savepoint_that_raises_loses_only_its_own(db):
    with db.transaction():
        put(db, "before")
        with pytest.raises(KeyError), db.savepoint():
            raise KeyError(put(db, "inside"))
        with db.savepoint():
            put(db, "after")
    assert [get(db, name) for name in ("before", "inside", "after")] == ["1", None, "1"]


def test_nobody_reads_what_is_not_committed(db, tmp_path):
    reader = connect(tmp_path / "store.db", readonly=True)
    with db.transaction():
        put(db, "x")
        assert get(reader, "x") is None
    assert get(reader, "x") == "1"
    reader.close()


def test_rows_row_and_value(db):
    put(db, "a", "1")
    assert db.rows("cursor_get", source="a") == [("1",)]
    assert db.row("cursor_get", source="a") == ("1",)
    assert db.value("cursor_get", source="a") == "1"
    assert (db.rows("cursor_get", source="b"), db.row("cursor_get", source="b")) == ([], None)
    assert db.value("cursor_get", source="b") is None
    with pytest.raises(KeyError):
        db.run("no_such_query")


def test_values_never_become_sql(db):
    put(db, "x'); DROP TABLE cursor; --", "'; DROP TABLE job; --")
    assert get(db, "x'); DROP TABLE cursor; --") == "'; DROP TABLE job; --"
