"""The one thread that writes: order, answers, and what one step's failure does to the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import apsw
import pytest

from pilotage.base import errors
from pilotage.store import Db, Writer, connect, writer


@pytest.fixture
def store(tmp_path) -> Iterator[Writer]:
    opened = Writer(connect(tmp_path / "store.db"))
    yield opened
    opened.close()


@pytest.fixture
def reader(tmp_path, store) -> Iterator[Db]:
    opened = connect(tmp_path / "store.db", readonly=True)
    yield opened
    opened.close()


def put(source: str, value: str = "1"):
    return lambda db: db.run("cursor_set", source=source, value=value)


def get(source: str):
    return lambda db: db.value("cursor_get", source=source)


def line(job: int):
    def step(db: Db) -> int:
        db.run("journal_add", now=0.0, job=job, attempt=0, state="queued", reason="")
        return int(db.value("journal_last"))

    return step


class Gate:
    """A step at which the writer stands until it is let through."""

    def __init__(self, store: Writer) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self.future = store.submit(self)
        assert self.reached.wait(10)

    def __call__(self, db: Db) -> None:
        self.reached.set()
        assert self.open.wait(10)


def test_what_is_answered_is_on_disk(store, reader):
    store.do(put("x"))
    assert get("x")(reader) == "1"


def test_an_event_loop_goes_on_while_a_step_waits_for_the_disk(store, reader):
    async def run() -> None:
        gate = Gate(store)
        task = asyncio.create_task(store.run(put("a", "7")))
        await asyncio.sleep(0)
        assert not task.done()
        gate.open.set()
        await task
        assert get("a")(reader) == "7"
        with pytest.raises(ZeroDivisionError):
            await store.run(lambda _: 1 / 0)

    asyncio.run(run())


def test_a_step_returns_what_it_found(store):
    store.do(put("x", "42"))
    assert store.do(get("x")) == "42"


def test_steps_run_in_the_order_in_which_they_were_asked_for(store, reader):
    gate = Gate(store)
    futures = [store.submit(line(job)) for job in range(200)]
    gate.open.set()
    assert [future.result(10) for future in futures] == list(range(1, 201))
    jobs = [reader.rows("journal_of", job=job) for job in range(200)]
    assert all(len(one) == 1 for one in jobs)


def test_many_threads_are_all_served_each_in_its_own_order(store, reader):
    def work(thread: int) -> list[int]:
        return [store.do(line(thread)) for _ in range(25)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(8)))
    assert all(one == sorted(one) for one in found)
    assert sorted(number for one in found for number in one) == list(range(1, 201))
    assert reader.value("journal_last") == 200


def test_what_waits_shares_a_transaction(store, reader):
    gate = Gate(store)
    seen: list[Any] = []
    first = store.submit(put("x"))
    store.submit(lambda db: seen.append((get("x")(db), get("x")(reader))))
    gate.open.set()
    first.result(10)
    store.do(lambda db: None)
    # The second step saw the first's row, a reader did not: it was not committed between them.
    assert seen == [("1", None)]


def test_a_step_that_fails_loses_its_own_changes_only(store):
    def bad(db: Db) -> None:
        put("bad")(db)
        message = "no"
        raise ValueError(message)

    gate = Gate(store)
    before, failing, after = store.submit(put("a")), store.submit(bad), store.submit(put("b"))
    gate.open.set()
    before.result(10)
    after.result(10)
    with pytest.raises(ValueError, match="no"):
        failing.result(10)
    assert [store.do(get(name)) for name in ("a", "bad", "b")] == ["1", None, "1"]


def test_a_mistake_in_sql_is_told_to_whoever_made_it(store):
    with pytest.raises(apsw.ConstraintError):
        store.do(lambda db: db.run("cursor_set", source="x", value=None))
    with pytest.raises(KeyError):
        store.do(lambda db: db.run("no_such_query"))
    store.do(put("x"))


def test_a_step_called_off_in_time_does_not_run_and_harms_nobody(store):
    gate = Gate(store)
    ran: list[str] = []
    off = store.submit(lambda db: ran.append("off"))
    on = store.submit(lambda db: ran.append("on"))
    assert off.cancel()
    gate.open.set()
    on.result(10)
    with pytest.raises(CancelledError):
        off.result(10)
    assert ran == ["on"]


def test_a_step_that_runs_cannot_be_called_off(store):
    gate = Gate(store)
    assert not gate.future.cancel()
    gate.open.set()
    assert gate.future.result(10) is None


def test_closing_finishes_what_was_asked_for(tmp_path):
    store = Writer(connect(tmp_path / "store.db"))
    gate = Gate(store)
    futures = [store.submit(line(job)) for job in range(50)]
    gate.open.set()
    store.close()
    assert [future.result(0) for future in futures] == list(range(1, 51))


def test_steps_wait_out_a_fault_of_the_disk_and_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "_PATIENCE_S", 0.01)
    store = Writer(connect(tmp_path / "store.db"))
    faults = [apsw.FullError(), apsw.IOError()]
    told: list[str] = []

    def step(db: Db) -> str:
        put("x")(db)
        if faults:
            raise faults.pop()
        told.append(store.trouble)
        return "done"

    assert store.do(step) == "done"
    assert told[0].endswith("the disk is full")
    store.do(put("y"))
    assert store.trouble == ""
    store.close()


def test_what_cannot_be_written_until_the_end_is_given_up_with_its_error(tmp_path):
    store = Writer(connect(tmp_path / "store.db"))
    reached = threading.Event()

    def step(db: Db) -> None:
        reached.set()
        raise apsw.FullError

    future = store.submit(step)
    assert reached.wait(10)
    store.close()
    with pytest.raises(errors.StoreUnavailable, match="the disk is full"):
        future.result(0)


@pytest.mark.parametrize("fault", [apsw.CorruptError("malformed"), apsw.NotADBError("no")])
def test_a_store_that_is_broken_for_good_keeps_nobody_waiting(tmp_path, monkeypatch, fault):
    db = connect(tmp_path / "store.db")
    store = Writer(db)
    gate = Gate(store)
    run = db._connection.execute

    class Broken:
        """A connection that cannot begin."""

        in_transaction = False

        def execute(self, *words: Any) -> Any:
            if words[0] == "BEGIN IMMEDIATE":
                raise fault
            return run(*words)

    future = store.submit(put("x"))
    real = db._connection
    monkeypatch.setattr(db, "_connection", Broken())
    gate.open.set()
    with pytest.raises((apsw.CorruptError, errors.ConfigError)):
        future.result(10)
    monkeypatch.setattr(db, "_connection", real)
    store.do(put("y"))
    store.close()


def test_nobody_can_ask_a_writer_that_is_closed(tmp_path):
    store = Writer(connect(tmp_path / "store.db"))
    store.close()
    with pytest.raises(errors.StoreUnavailable, match="closed"):
        store.submit(put("x")).result(1)
