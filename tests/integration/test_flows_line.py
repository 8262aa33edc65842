"""What sites say comes late, twice, in another order or not at all, and flows go on as they should.

The sites are scripted, since a real agent does none of this by itself; the broker is real.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from pilotage.bus import wire
from testbed.rabbit import Rabbit
from tests.rigs.broker.amqp_client import AmqpClient
from tests.rigs.broker.scripted_site import Site, until
from tests.rigs.broker.site_messages import OwnExchange
from tests.rigs.project.flow_hub import Flow, Hub, Step

_names = itertools.count(1)


@pytest.fixture(scope="module")
def lane(rabbit: Rabbit) -> OwnExchange:
    return OwnExchange(rabbit)


@pytest.fixture(scope="module")
def hub(lane: OwnExchange, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    root = tmp_path_factory.mktemp("line")
    told = {"ask": "1s", "silence": "4s", "users": ["alice"], "data": f"file://{root}/data"}
    made = Hub(root / "hub", lane, settings={"flows": told})
    with made.up():
        yield made


@pytest.fixture
def site(lane: OwnExchange) -> Iterator[Site]:
    with Site(lane, f"mira-{next(_names)}").up() as one:
        yield one


@pytest.fixture
def other(lane: OwnExchange) -> Iterator[Site]:
    with Site(lane, f"theta-{next(_names)}").up() as one:
        yield one


def one_step(*sites: Site, **more: object) -> Flow:
    step = Step(sites=tuple(one.name for one in sites), application="x", **more)  # type: ignore[arg-type]
    return Flow(name=f"flow-{next(_names)}", steps={"only": step})


def states(hub: Hub, number: int) -> list[str]:
    """Return the states of the attempts of a flow."""
    return [one.state for one in hub.attempts(number)]


def test_words_that_come_twice_in_another_order_and_after_the_last(hub: Hub, site: Site):
    number = hub.submit(one_step(site))
    job = site.job()
    site.say(job, 3, "running")
    hub.wait_state(number, "only", "running")
    for seq, state in ((2, "submitted"), (3, "running"), (1, "queued"), (5, "done"), (5, "done"),
                       (4, "staging_out"), (6, "failed")):  # fmt: skip
        site.say(job, seq, state)
    assert hub.wait_over(number) == ["done"]
    site.say(job, 7, "failed")
    again = hub.submit(one_step(site))
    site.say(site.job(1), 1, "done")
    # What was said before it has been heard by then.
    assert hub.wait_over(again) == ["done"]
    assert states(hub, number) == ["done"]
    assert hub.flow(number).state == "done"
    assert len(site.jobs) == 2


def test_a_site_speaks_for_itself_alone(hub: Hub, site: Site, other: Site):
    number = hub.submit(one_step(site))
    job = site.job()
    other.say(job, 1, "done")
    other.say("not.of.this.hub", 1, "done")
    site.say(job, 2, "failed", reason={"class": "application", "code": "exit", "text": "no"})
    assert hub.wait_over(number) == ["failed"]
    assert hub.reasons(number) == {"only": "no"}


def test_words_that_were_lost_are_asked_for(hub: Hub, site: Site):
    site.answers["query"] = "done"
    number = hub.submit(one_step(site))
    job = site.job()
    assert hub.wait_over(number) == ["done"]
    assert site.asked("query").keys == (job.key,)
    assert len(site.jobs) == 1


def test_a_job_that_was_lost_on_the_way_is_sent_again(hub: Hub, site: Site):
    site.answers["query"] = "unknown"
    number = hub.submit(one_step(site))
    first, second = site.job(0), site.job(1)
    assert wire.encode(first) == wire.encode(second)
    site.say(second, 1, "done")
    assert hub.wait_over(number) == ["done"]
    assert states(hub, number) == ["done"]


def test_a_site_that_has_lost_a_job_gets_another(hub: Hub, site: Site):
    number = hub.submit(one_step(site, delay=0.1))
    first = site.job(0)
    site.answers["query"] = "unknown"
    site.say(first, 1, "running")
    second = site.job(1)
    assert first.key != second.key
    site.answers["query"] = ""
    site.say(second, 1, "done")
    assert hub.wait_over(number) == ["done"]
    assert states(hub, number) == ["lost", "done"]


def test_a_site_that_nobody_serves_is_told_of_and_gets_its_job_later(hub: Hub, lane: OwnExchange):
    late = Site(lane, f"late-{next(_names)}")
    late.course = ["running", "done"]
    number = hub.submit(one_step(late))
    hub.wait(lambda: late.name in hub.why(number)["only"])
    assert f"no report from site `{late.name}` yet" in hub.why(number)["only"]
    with late.up():
        assert hub.wait_over(number) == ["done"]
    assert len(late.jobs) == 1


def test_what_nobody_has_is_called_off_at_once(hub: Hub, lane: OwnExchange):
    number = hub.submit(one_step(Site(lane, f"never-{next(_names)}")))
    hub.wait(lambda: hub.attempts(number))
    hub.cancel(number)
    assert hub.wait_over(number) == ["cancelled"]


# -- called off ------------------------------------------------------------------------------------


def test_a_flow_is_called_off_when_its_site_says_so(hub: Hub, site: Site):
    site.answers["cancel"] = ""
    number = hub.submit(one_step(site))
    job = site.job()
    site.say(job, 1, "running")
    hub.wait_state(number, "only", "running")
    hub.cancel(number)
    assert site.asked("cancel").keys == (job.key,)
    assert hub.flow(number).state == "cancelling"
    site.say(job, 2, "cancelled")
    assert hub.wait_over(number) == ["cancelled"]


def test_a_call_that_overtakes_its_job_is_repeated(hub: Hub, site: Site):
    """What is asked and what is to be done come by two queues."""
    site.answers["cancel"] = "unknown"
    number = hub.submit(one_step(site))
    job = site.job()
    hub.cancel(number)
    site.asked("cancel")
    site.answers["cancel"] = "cancelled"
    assert hub.wait_over(number) == ["cancelled"]
    asked = [one.keys for one in site.controls if one.verb == "cancel"]
    # A site that takes longer to answer than `flows.ask` says is called once more.
    assert len(asked) >= 2
    assert set(asked) == {(job.key,)}


def test_a_call_that_was_lost_is_repeated(hub: Hub, site: Site):
    site.answers["cancel"] = ""
    number = hub.submit(one_step(site))
    job = site.job()
    site.say(job, 1, "running")
    hub.wait_state(number, "only", "running")
    hub.cancel(number)
    site.asked("cancel")
    site.answers["cancel"] = "cancelled"
    assert hub.wait_over(number) == ["cancelled"]
    assert site.asked("cancel", 1).keys == (job.key,)
    assert "has been silent for" not in states_reason(hub, number)


def test_what_is_done_before_it_is_called_off_is_done(hub: Hub, site: Site):
    site.answers["cancel"] = ""
    number = hub.submit(one_step(site))
    job = site.job()
    hub.cancel(number)
    site.asked("cancel")
    site.say(job, 5, "done")
    hub.wait_over(number)
    assert hub.steps(number) == {"only": "done"}


def test_a_flow_at_a_silent_site_is_called_off_in_the_end(hub: Hub, site: Site):
    site.answers["cancel"] = ""
    number = hub.submit(one_step(site))
    site.job()
    hub.cancel(number)
    assert hub.wait_over(number) == ["cancelled"]
    assert "has been silent for" in states_reason(hub, number)


def states_reason(hub: Hub, number: int) -> str:
    return hub.attempts(number)[-1].reason


# -- silence ---------------------------------------------------------------------------------------


def test_a_silent_site_is_given_up_and_what_it_says_later_does_not_count(
    hub: Hub, site: Site, other: Site
):
    flow = one_step(site, other, on_failure="other_site")
    number = hub.submit(flow)
    until(lambda: site.jobs or other.jobs)
    silent, good = (site, other) if site.jobs else (other, site)
    good.course = ["running"]
    lost = silent.job()
    job = good.job()
    assert silent.asked("cancel").keys == (lost.key,)
    silent.say(lost, 9, "done")
    good.say(job, 2, "staging_out")
    hub.wait_state(number, "only", "staging_out")
    assert hub.flow(number).state == "running", "the first attempt is fenced"
    good.say(job, 3, "done")
    assert hub.wait_over(number) == ["done"]
    old, new = hub.attempts(number)
    assert (old.state, old.fenced, old.site) == ("lost", 1, silent.name)
    assert (new.state, new.fenced, new.site) == ("done", 0, good.name)


def test_a_silent_site_is_waited_for_where_there_is_no_other(hub: Hub, site: Site):
    number = hub.submit(one_step(site))
    job = site.job()

    def reason() -> str:
        return str(hub.query("SELECT reason FROM flow_task WHERE flow = ?", number)[0][0])

    hub.wait(lambda: "has been silent for" in reason())
    assert hub.flow(number).state == "running"
    site.say(job, 1, "done")
    assert hub.wait_over(number) == ["done"]
    assert states(hub, number) == ["done"]


# -- flows that come by the broker -----------------------------------------------------------------


@pytest.fixture(scope="module")
def alice(rabbit: Rabbit, lane: OwnExchange) -> Iterator[AmqpClient]:
    with AmqpClient(rabbit, "alice", lane.exchange, ["told.#", "argo_job_status"]) as one:
        yield one


def told(who: AmqpClient, topic: str) -> list[dict[str, object]]:
    return [one.said for one in list(who.heard) if one.topic == topic]


def test_a_flow_of_ours_by_the_broker(hub: Hub, site: Site, alice: AmqpClient):
    site.course = ["submitted", "running", "done"]
    step = {"site": site.name, "application": "x"}
    body = {
        "v": 1, "kind": "flow", "key": "mine", "reply": "told.mine", "params": {"n": 2},
        "flow": {
            "name": "ours", "params": {"n": 1},
            "step": {"a": step | {"parameters": {"n": "{n}"}}, "b": step | {"needs": ["a"]}},
        },
    }  # fmt: skip
    alice.post("flow", body, body)
    until(
        lambda: any(one["state"] == "done" and not one["step"] for one in told(alice, "told.mine"))
    )
    found = hub.query("SELECT id, owner, source FROM flow WHERE name = 'ours'")
    assert [row[1:] for row in found] == [("alice", "message")], "twice the same is one"
    assert [one.parameters for one in site.jobs] == [{"n": 2}, {}]
    said = told(alice, "told.mine")
    assert [one["seq"] for one in said] == list(range(1, len(said) + 1))
    assert {one["key"] for one in said} == {"mine"}
    assert [one["state"] for one in said if not one["step"]] == ["running", "done"]
    assert [one["step"] for one in said if one["state"] == "done" and not one["task"]] == [
        "a",
        "b",
        "",
    ]


def test_a_chain_of_argos_by_the_broker(hub: Hub, site: Site, other: Site, alice: AmqpClient):
    for one in (site, other):
        one.course = ["staging_in", "submitted", "running", "staging_out", "done"]
    jobs = [{"site": one.name, "application": "x", "name": "n"} for one in (site, other)]
    chain = {
        "job_id": 4711, "name": "legacy", "username": "alice", "email": "", "subjobs": jobs,
        "job_status_routing_key": "argo_job_status",
    }  # fmt: skip
    alice.post("argo_job", chain)
    number = None

    def there() -> bool:
        nonlocal number
        found = hub.query("SELECT id FROM flow WHERE name = 'legacy'")
        number = found[0][0] if found else None
        return number is not None

    hub.wait(there)
    assert number is not None
    assert site.job().application == "x"
    until(lambda: len(told(alice, "argo_job_status")) >= 3)
    first = told(alice, "argo_job_status")
    assert {one["job_id"] for one in first} == {4711}
    assert [one["state"] for one in first][:3] == ["CREATED", "STAGED_IN", "SUBJOB_SUBMITTED"]


@pytest.mark.parametrize(
    "flow, words",
    [
        ({"name": "r", "step": {"a": {"command": ["true"]}}}, "applications alone"),
        ({"name": "r", "step": {"a": {"site": "m", "application": "x", "needs": ["a"]}}}, "a"),
        ({"name": "r", "steps": {}}, "steps"),
    ],
)
def test_a_flow_that_is_refused(hub: Hub, alice: AmqpClient, flow: dict[str, object], words: str):
    reply = f"told.refused-{next(_names)}"
    alice.post("flow", {"v": 1, "kind": "flow", "flow": flow, "reply": reply})
    until(lambda: told(alice, reply))
    said = told(alice, reply)[0]
    assert (said["flow"], said["state"]) == (0, "rejected")
    assert words in str(said["text"])
    assert hub.query("SELECT 1 FROM flow_refused WHERE user = 'alice' AND reason = ?", said["text"])


def test_who_may_not_send_flows_and_where_nothing_is_said(
    hub: Hub, rabbit: Rabbit, lane: OwnExchange, alice: AmqpClient
):
    body = {
        "v": 1, "kind": "flow", "flow": {"name": "no", "step": {}}, "reply": "told.bob",
    }  # fmt: skip
    with AmqpClient(rabbit, "bob", lane.exchange) as bob:
        bob.post("flow", body)
    until(lambda: told(alice, "told.bob"))
    assert "may not send workflows" in str(told(alice, "told.bob")[0]["text"])
    good = {"name": "no", "step": {"a": {"site": "m", "application": "x"}}}
    alice.post("flow", {"v": 1, "kind": "flow", "flow": good, "reply": "job.m"})
    hub.wait(lambda: hub.query("SELECT 1 FROM flow_refused WHERE reason LIKE '%sends nothing%'"))
