"""Jobs of Balsam's and chains of Argo's that are sent to a hub: they run wherever it has room."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.rabbit import Rabbit
from tests.rigs.broker.amqp_client import AmqpClient
from tests.rigs.broker.scripted_site import until
from tests.rigs.broker.site_messages import OwnExchange
from tests.rigs.project.flow_hub import Hub

_numbers = itertools.count(1)
SETTINGS: dict[str, Any] = {
    "flows": {"users": ["alice"]},
    "bus": {"jobs": {"balsam": "argo", "job.hub": ""}},
    "app": {"count": {"argv": ["sh", "-c", 'echo "$word" > word.txt']}},
}


@pytest.fixture(scope="module")
def lane(rabbit: Rabbit) -> OwnExchange:
    return OwnExchange(rabbit)


@pytest.fixture(scope="module")
def hub(lane: OwnExchange, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    root = tmp_path_factory.mktemp("messages")
    told = SETTINGS | {"flows": SETTINGS["flows"] | {"folders": [str(root / "out")]}}
    (root / "out").mkdir()
    made = Hub(root / "hub", lane, settings=told)
    with made.up():
        yield made


@pytest.fixture(scope="module")
def alice(rabbit: Rabbit, lane: OwnExchange) -> Iterator[AmqpClient]:
    topics = ["balsam_job_status", "argo_job_status", "told.#"]
    with AmqpClient(rabbit, "alice", lane.exchange, topics) as one:
        yield one


def told(who: AmqpClient, topic: str, number: int) -> list[dict[str, Any]]:
    found = [one.said for one in list(who.heard) if one.topic == topic]
    return [one for one in found if one.get("job_id") == number]


def owners(hub: Hub, name: str) -> list[tuple[str, str]]:
    rows = hub.query("SELECT owner, state FROM flow WHERE name = ?", name)
    return [(owner, state) for owner, state in rows]


def balsam(name: str, number: int, **more: object) -> dict[str, Any]:
    """Write a definition as the original's own client sends it, which names no site here."""
    return {
        "name": name, "job_id": number, "application": "count", "num_nodes": 1,
        "processes_per_node": 1, "wall_time_minutes": 5, "state": "CREATED", **more,
    }  # fmt: skip


def test_a_job_of_balsams_that_nobody_signed_is_of_whom_the_settings_name(
    hub: Hub, alice: AmqpClient
):
    number = next(_numbers)
    alice.post("balsam", balsam("unsigned", number), named=False)
    until(lambda: "JOB_FINISHED" in states(alice, number))
    assert owners(hub, "unsigned") == [("argo", "done")]
    assert hub.query("SELECT name, state FROM job WHERE name LIKE 'unsigned/%'")[0][1] == "done"
    assert states(alice, number)[0] == "CREATED"


def states(who: AmqpClient, number: int) -> list[str]:
    said = told(who, "balsam_job_status", number)
    return [json.loads(one["serialized_job"])["state"] for one in said]


def test_a_signed_job_is_of_who_signed_it_and_the_same_twice_is_one(hub: Hub, alice: AmqpClient):
    number = next(_numbers)
    body = balsam("signed", number)
    alice.post("balsam", body, body)
    until(lambda: "JOB_FINISHED" in states(alice, number))
    assert owners(hub, "signed") == [("alice", "done")]


def test_a_job_of_ours_names_any_place_and_its_output_comes_home(hub: Hub, alice: AmqpClient):
    out = hub.root.parent / "out"
    body = {
        "v": 1, "kind": "job", "site": "any", "application": "count", "name": "ours", "key": "k",
        "parameters": {"word": "hello"}, "reply": "told.ours",
        "outputs": [{"url": f"file://{out}/ours/"}],
    }  # fmt: skip
    alice.post("job.hub", body)
    hub.wait(lambda: owners(hub, "ours") == [("alice", "done")])
    assert (out / "ours" / "word.txt").read_text() == "hello\n"


def test_a_chain_of_argos_without_sites_runs_here(hub: Hub, alice: AmqpClient):
    number = next(_numbers)
    chain = {
        "job_id": number, "name": "chain", "job_status_routing_key": "argo_job_status",
        "subjobs": [{"application": "count", "name": one} for one in ("a", "b")],
    }  # fmt: skip
    alice.post("balsam", chain, named=False)
    until(
        lambda: [one["state"] for one in told(alice, "argo_job_status", number)][-1:] == ["HISTORY"]
    )
    assert owners(hub, "chain") == [("argo", "done")]


def test_who_is_not_named_or_may_not_is_refused_with_the_reason(hub: Hub, alice: AmqpClient):
    alice.post("job.hub", balsam("nobody", next(_numbers)), named=False)
    reason = "unknown sender: the broker has verified no name"
    hub.wait(lambda: hub.query("SELECT 1 FROM flow_refused WHERE reason = ?", reason))
    number = next(_numbers)
    alice.post("balsam", balsam("none", number, application="no-such"), named=False)
    until(lambda: "JOB_REJECTED" in states(alice, number) or "JOB_FAILED" in states(alice, number))
