"""A workflow goes on that was under way when its steps at sites with an agent were no jobs yet."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from pilotage.flow import moves
from pilotage.flow.model import Flow, NewFlow, Step
from pilotage.store import connect, sqlite
from testbed.rabbit import Rabbit
from tests.rigs.broker.scripted_site import Site, until
from tests.rigs.broker.site_messages import OwnExchange
from tests.rigs.project.flow_hub import Hub

#: The last version of the store in which such steps were messages of their own.
OLD = 17
SITE, NAME = "mira", "abcd1234"
_TABLES = ("flow", "flow_text", "flow_step", "flow_spec", "flow_edge", "flow_task", "flow_journal")
_ATTEMPT = """
INSERT INTO old.flow_attempt (task, number, flow, way, site, key, job, state, seq, sent, heard,
    created, cancel)
VALUES (:task, 1, 1, 'bus', :site, :key, :job, :state, :seq, :sent, :heard, :now, :cancel)
"""
_MESSAGE = """
INSERT INTO old.flow_outbox (flow, task, number, kind, topic, body)
VALUES (1, :task, 1, 'job', :topic, :body)
"""

_FENCED = """
UPDATE flow_attempt SET fenced = 1, cancel = 1, state = 'lost', ended = :now WHERE task = :task
"""


@pytest.fixture
def lane(rabbit: Rabbit) -> OwnExchange:
    return OwnExchange(rabbit)


@pytest.fixture
def hub(lane: OwnExchange, tmp_path: Path) -> Iterator[Hub]:
    told = {"ask": "1s", "silence": "20s"}
    made = Hub(tmp_path / "hub", lane, settings={"flows": told})
    yield made
    made.kill()


def step(*needs: str) -> Step:
    return Step(sites=(SITE,), application="x", needs=needs)


def under_way(hub: Hub, file: Path) -> None:
    """Leave a store as the version before did, with three attempts at a site.

    One runs there, one was never sent, and one was to be cancelled.
    """
    steps = {"runs": step(), "sent": step(), "off": step(), "next": step("runs", "sent")}
    now = time.time()
    fresh = connect(file)
    with fresh.transaction():
        new = NewFlow(flow=Flow(name="old", steps=steps), key="old", owner="me")
        assert moves.submit(fresh, new, now) == 1
    fresh.close()
    raw = apsw.Connection(str(file))
    store = hub.root / ".pilotage" / "store.db"
    store.parent.mkdir(exist_ok=True)
    store.unlink(missing_ok=True)
    raw.execute("ATTACH ? AS old", (str(store),))
    old = apsw.Connection(str(store))
    for number, text in sqlite.migrations():
        if number <= OLD:
            old.execute(text)
    old.execute(f"PRAGMA user_version = {OLD}")
    old.close()
    for table in _TABLES:
        raw.execute(f"INSERT INTO old.{table} SELECT * FROM main.{table}")  # noqa: S608 - names of ours
    raw.execute("UPDATE old.flow_task SET state = 'running', attempt = 1 WHERE state = 'queued'")
    raw.execute("INSERT INTO old.cursor (source, value) VALUES ('flows hub', ?)", (NAME,))
    for task, (state, sent, cancel) in enumerate(
        [("running", now, 0), ("queued", None, 0), ("running", now, 1)], start=1
    ):
        raw.execute(_ATTEMPT, {
            "task": task, "site": SITE, "key": f"flow.1.{task}.1", "job": 70 + task,
            "state": state, "seq": 3 if sent else 0, "sent": sent, "heard": sent, "now": now,
            "cancel": cancel,
        })  # fmt: skip
    body = {
        "v": 1, "kind": "job", "site": SITE, "application": "x", "key": f"{NAME}.flow.1.2.1",
    }  # fmt: skip
    raw.execute(_MESSAGE, {"task": 2, "topic": f"job.{SITE}", "body": json.dumps(body)})
    raw.close()


@pytest.mark.parametrize("crash", ["", "flow.adopted"])
def test_it_goes_on_after_the_upgrade(hub: Hub, lane: OwnExchange, tmp_path: Path, crash: str):
    under_way(hub, tmp_path / "fresh.db")
    if crash:
        hub.dies(crash)
    with Site(lane, SITE).up() as site, hub.up():
        # The one that was never sent is sent as it was; the one that was to be cancelled is.
        assert site.job().key == f"{NAME}.flow.1.2.1"
        site.say(f"{NAME}.flow.1.1.1", 5, "done")
        site.say(f"{NAME}.flow.1.2.1", 1, "done")
        assert site.asked("cancel").keys == (f"{NAME}.flow.1.3.1",)
        following = site.job(1)
        assert following.key.startswith(f"{NAME}.job.")
        site.say(following, 1, "done")
        hub.wait_over(1)
    assert hub.steps(1) == {
        "runs": "done", "sent": "done", "off": "failed", "next": "done",
    }  # fmt: skip
    assert [one.number for one in hub.attempts(1)] == [1] * 4
    rows = hub.query("SELECT name, state FROM job ORDER BY id")
    assert sorted(rows) == [
        ("old/next", "done"), ("old/off", "cancelled"), ("old/runs", "done"), ("old/sent", "done"),
    ]  # fmt: skip
    assert not hub.query("SELECT 1 FROM flow_outbox")


@pytest.mark.parametrize("sent", [True, False])
def test_what_was_fenced_just_before_the_upgrade_is_cancelled(
    hub: Hub,
    lane: OwnExchange,
    tmp_path: Path,
    sent: bool,  # noqa: FBT001
):
    under_way(hub, tmp_path / "fresh.db")
    store = apsw.Connection(str(hub.root / ".pilotage" / "store.db"))
    store.execute(_FENCED, {"now": time.time(), "task": 3 if sent else 2})
    store.execute(
        "UPDATE flow_task SET state = 'failed', ended = 1 WHERE id = ?", (3 if sent else 2,)
    )
    store.close()
    key = f"{NAME}.flow.1.{3 if sent else 2}.1"
    with Site(lane, SITE).up() as site, hub.up():
        until(lambda: (key,) in [one.keys for one in site.controls if one.verb == "cancel"])
        hub.wait(lambda: ("cancelled",) in hub.query(
            "SELECT job.state FROM job JOIN edge_attempt ON job = id WHERE edge_attempt.key = ?",
            key.removeprefix(f"{NAME}."),
        ))  # fmt: skip
    assert not hub.query("SELECT 1 FROM flow_outbox")
