"""Pools of a hub as a controller sees them: at once, by one connection, and as the hub allows."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import msgspec
import pytest

from pilotage.base import errors
from pilotage.client.rest import Session
from pilotage.client.where import Address
from pilotage.pool.remote import PoolHub, RemotePool, Voice, reading, takes
from pilotage.pool.view import PoolView

NOW = 1_000_000.0


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


# -- a pool of a hub -------------------------------------------------------------------------------


def pool(**facts: Any) -> PoolView:
    return PoolView(name="a", state="controlled", **facts)


def test_a_demand_counts_as_the_hub_made_it_once_the_hub_has_looked():
    sheet = pool(demand=6.0, asked=40.0, heard=NOW, looked=NOW - 1)
    assert reading(sheet).demand == 40.0
    assert reading(msgspec.structs.replace(sheet, looked=NOW + 1)).demand == 6.0
    assert reading(pool(demand=6.0, looked=NOW)).demand == 6.0


def test_a_pool_takes_what_its_hub_allows():
    sheet = pool(minimum=2, maximum=8, supply=4.0, queued=1.0, pending=9)
    assert takes(sheet, 5.0) == (5.0, "")
    assert takes(sheet, 50.0) == (8.0, "its maximum in the hub is 8")
    assert takes(sheet, 1.0)[0] == 2.0
    paused = msgspec.structs.replace(sheet, state="paused")
    assert takes(paused, 50.0)[0] == 5.0
    slow = msgspec.structs.replace(sheet, pending=1, cpus=2)
    assert takes(slow, 8.0) == (7.0, "only 1 of its pilots may wait at once")


def test_an_empty_pool_is_neither_well_nor_badly_used():
    assert reading(pool(utilisation=0.0, allocation=0.0)).utilisation is None


# -- a hub of many pools ---------------------------------------------------------------------------


class Desk(BaseHTTPRequestHandler):
    """Answers as a hub does, and counts."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[str]] = []
    #: Whether it hangs up after each answer without a word.
    rude = False

    def do_GET(self) -> None:
        rows = [{"name": name, "state": "controlled", "control": "outside"} for name in "abc"]
        self._answer({"pools": rows})

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer({"demand": 1.0, "words": ""})

    def _answer(self, found: dict[str, Any]) -> None:
        self.asked.append(f"{self.command} {self.path}")
        body = msgspec.json.encode(found)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.rude

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def desk():
    Desk.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Desk) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield Address("127.0.0.1", server.server_address[1], "token")
        server.shutdown()
        thread.join()


@pytest.fixture
def hubs(desk):
    """Return what makes hubs; the desk closes after its guests have left."""
    made: list[PoolHub] = []

    def make(find: Callable[[], Address], clock: Hands) -> PoolHub:
        made.append(PoolHub(find, clock))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_pools_of_a_hub_are_asked_about_once_and_told_one_by_one(desk, hubs):
    clock = Hands()
    hub = hubs(lambda: desk, clock)
    leaves = [RemotePool(name, hub, Voice("me"), clock) for name in "abc"]
    for leaf in leaves:
        leaf.act(leaf.plan(leaf.view(), None, 1.0))
    assert Desk.asked[0] == "GET /api/v1/pools"
    with pytest.raises(errors.NotFound, match="no pool `d`"):
        RemotePool("d", hub, Voice("me"), clock).view()
    Desk.asked.clear()
    for leaf in leaves:
        leaf.view()
    assert Desk.asked == []
    clock.now = 1.0
    for leaf in leaves:
        leaf.view()
    assert Desk.asked == ["GET /api/v1/pools"]


def test_a_demand_that_stays_is_told_again_before_it_counts_as_silence(desk, hubs):
    clock = Hands()
    hub = hubs(lambda: desk, clock)
    leaf = RemotePool("a", hub, Voice("me"), clock)
    sheet = pool(control="outside", silence=600.0, maximum=9, pending=9)
    for second in range(0, 400, 50):
        clock.now = float(second)
        hub._seen, hub._when = {"a": sheet}, clock.now
        leaf.act(leaf.plan(leaf.view(), 3.0, 1.0))
    assert Desk.asked == ["PUT /api/v1/pools/a/demand"] * 3


def test_a_connection_that_was_closed_meanwhile_is_opened_anew(desk, monkeypatch):
    monkeypatch.setattr(Desk, "rude", True)
    with contextlib.closing(Session(desk, 10.0)) as session:
        for _ in range(3):
            assert session.ask("GET", "/pools")["pools"]
    assert len(Desk.asked) == 3


def test_a_hub_that_is_away_is_asked_once_for_all_of_its_pools():
    tries = []

    def find() -> Address:
        tries.append(1)
        return Address("127.0.0.1", 9, "token")

    clock = Hands()
    hub = PoolHub(find, clock)
    for name in "abc":
        with pytest.raises(errors.Unavailable):
            RemotePool(name, hub, Voice("me"), clock).view()
    assert len(tries) == 1
