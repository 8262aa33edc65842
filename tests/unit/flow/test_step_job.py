"""What the workflow service writes: jobs for sites and for the hub, and what others are told."""

from __future__ import annotations

import contextlib
import email
import email.policy
import json
from typing import Any

import pytest

from pilotage.base import errors
from pilotage.bus import wire
from pilotage.bus.model import Control, Course, Input, Job
from pilotage.edge import message
from pilotage.edge.message import HubIdentity
from pilotage.flow import accept, notify, step_job
from pilotage.flow.model import IntRange, Step
from pilotage.flow.orders import PlacedOrder, PreparedData, Unfit
from pilotage.flow.records import StoryLine
from pilotage.job import template
from pilotage.job.model import App, Binding, Command
from pilotage.project.settings import BusSettings, Settings

MINE = HubIdentity("abcd1234")


def order(step: Step, **more: Any) -> PlacedOrder:
    facts: dict[str, Any] = {
        "flow": 3, "name": "atlas", "owner": "me", "tag": "", "step": "sim", "task": 9, "item": 0,
        "value": None, "number": 2, "key": "flow.3.9.2", "definition": step, "avoid": (),
        "inputs": (), "way": "edge", "site": "mira",
    }  # fmt: skip
    return PlacedOrder(**{**facts, **more})


def test_a_job_for_a_site_asks_for_what_the_step_does():
    step = Step(
        application="simulate", parameters={"n": 5}, env={"A": "b"}, nodes=IntRange(2, 8),
        time=IntRange(600, 3600), work=7200, tasks=4, cpus=2, memory=10**9, gpus=1, queue="q",
        project="p", options=("--exclusive",), config="x = 1",
    )  # fmt: skip
    given = (Input(url="https://data.example.org/x", path="x"),)
    new = step_job.make_job(order(step), PreparedData(inputs=given))
    data = message.handoff(new.binding)
    assert data is not None
    there = message.remote(new.spec, new.binding, "/project", 7)
    written = message.job(there, new.spec, data, site="mira", key="k", reply="")
    sent = wire.decode(written)
    assert isinstance(sent, Job)
    assert (sent.site, sent.name, sent.parameters, sent.env) == (
        "mira", "atlas/sim", {"n": 5}, {"A": "b"}
    )  # fmt: skip
    assert (sent.nodes, sent.wall_time, sent.tasks) == (8, 3600, 4)
    shape = sent.shape
    assert (shape.nodes_least, shape.time_least, shape.work) == (2, 600, 7200)
    assert (sent.resources.cpus, sent.resources.gpus, sent.resources.memory) == (2, 1, 10**9)
    assert (sent.inputs, sent.options, sent.config) == (given, ("--exclusive",), "x = 1")
    assert (new.tag, new.owner, new.spec.site) == ("flow:3", "me", "mira")


def test_the_same_attempt_is_the_same_job():
    one = order(Step(application="x", parameters={"b": "{c}", "a": 2}))
    assert step_job.make_job(one, PreparedData()) == step_job.make_job(one, PreparedData())
    there = message.remote(step_job.make_job(one, PreparedData()).spec, Binding(), "", 7)
    assert there.parameters == {"b": "{c}", "a": 2}, "what is filled in already says just itself"


@pytest.mark.parametrize(
    "step",
    [
        Step(application="x", parameters={"n": [1, 2]}),
        Step(application="x y"),
        Step(application="x", env={"A B": "c"}),
    ],
)
def test_what_no_site_would_take_is_not_sent(step: Step):
    with pytest.raises(Unfit, match=r"no site would accept it: [^:]"):
        step_job.make_job(order(step), PreparedData())


def test_an_address_knows_its_own():
    assert MINE.attempt(MINE.key("flow.1.2.3")) == "flow.1.2.3"
    assert MINE.attempt("ffff0000.flow.1.2.3") == ""
    assert MINE.attempt("flow.1.2.3") == ""
    assert MINE.answers("mira") == "status.mira"
    topic, body = message.control("cancel", "mira", ["flow.1.2.3"], MINE, "why\nnot")
    asked = wire.decode(body)
    assert isinstance(asked, Control)
    assert (topic, asked.keys) == ("control.mira", ("abcd1234.flow.1.2.3",))
    assert asked.reason == "why not"


def test_a_job_of_the_hub_says_just_what_was_filled_in():
    """What has braces after the templates of the flow were filled in has them on purpose."""
    step = Step(recipe={"kind": "command", "argv": ["echo", "{paths}"]}, parameters={"a": "{b}"})
    new = step_job.make_job(order(step, way="here", site=""), PreparedData(folder="/x/{y}"))
    assert isinstance(new.spec.recipe, Command)
    written = (*new.spec.recipe.argv, new.spec.params["a"], new.spec.cwd)
    assert [template.render(one, {}) for one in written] == ["echo", "{paths}", "{b}", "/x/{y}"]
    assert (new.tag, new.owner, new.spec.name, len(new.key)) == ("flow:3", "me", "atlas/sim", 32)
    own = step_job.make_job(order(Step(application="fit"), way="here", site=""), PreparedData())
    assert own.spec.recipe == App(app="fit")
    assert own.key == new.key, "the attempt makes the key"


# -- what others are told --------------------------------------------------------------------------


def line(state: str, **more: Any) -> StoryLine:
    facts = {"id": 1, "time": 5.0, "flow": 3, "step": "", "task": 0, "number": 0, "words": "why"}
    return StoryLine(**{**facts, "state": state, **more})


def test_our_own_words_are_a_message():
    for state in ("running", "skipped", "cancelling", "lost", "rejected"):
        said = wire.decode(notify.ours(line(state, step="s"), "n", "k", 7).encode())
        assert isinstance(said, Course)
        assert (said.state, said.seq, said.key, said.text) == (state, 7, "k", "why")


@pytest.mark.parametrize(
    "said, wanted",
    [
        (line("running"), ["CREATED", "STAGED_IN"]),
        (line("ready", step="1-a", task=1, words="sent to mira"), ["SUBJOB_SUBMITTED"]),
        (line("ready", step="1-a", task=1), ["SUBJOB_IN_PREPROCESS"]),
        (line("submitted", step="1-a", task=1), ["SUBJOB_QUEUED"]),
        (line("running", step="1-a", task=1), ["SUBJOB_RUNNING"]),
        (line("done", step="1-a", task=1), []),
        (line("done", step="1-a"), ["SUBJOB_COMPLETED", "SUBJOB_INCREMENTED"]),
        (line("staging_out"), ["SUBJOBS_COMPLETED"]),
        (line("done"), ["STAGED_OUT", "HISTORY"]),
        (line("cancelled"), ["FAILED"]),
        (line("rejected"), ["REJECTED"]),
    ],
)
def test_argos_words(said: StoryLine, wanted: list[str]):
    found = [json.loads(one) for one in notify.argo(said, 4711)]
    assert [one["state"] for one in found] == wanted
    assert all(one["job_id"] == 4711 and one["message"] == said.words for one in found)


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.org/x", "https://other.example.org/x", "https://u:p@hooks.example.org/",
        "https://hooks.example.org:444/", "https://hooks.example.org.evil.org/", "file:///etc/passwd",
        "https://[::1", "",
    ],
)  # fmt: skip
def test_webhooks_that_are_not_called(url: str):
    with pytest.raises(errors.Denied):
        notify.check_webhook(url, ("hooks.example.org",))


def test_webhooks_that_are_called():
    notify.check_webhook("https://hooks.example.org/x?y=1", ("hooks.example.org",))
    notify.check_webhook("https://hooks.example.org:444/x", ("hooks.example.org:444",))


@pytest.mark.parametrize("odd", ["\n", "\r\n", "\r", "\x00", "\u2028", "\x0b", "\x85"])
def test_nobody_writes_headers_of_a_mail(odd: str):
    said = {"name": f"n{odd}Bcc: all@place.example", "flow": 3, "state": "done", "text": "x"}
    raw = notify.mail(f"me@place.example{odd}Bcc: all@place.example", said)
    found = email.message_from_bytes(raw, policy=email.policy.default)
    assert found["Bcc"] is None
    assert {name.lower() for name in found} <= {
        "to", "subject", "auto-submitted", "content-type", "content-transfer-encoding",
        "mime-version",
    }  # fmt: skip


@pytest.mark.parametrize("address", ['"', ",a<", ':)?), ;""?', " .[].", '""@ [x'])
def test_nobody_keeps_others_from_getting_mail(address: str):
    """Versions of the library trip over different addresses, each in its own way."""
    with contextlib.suppress(errors.Denied):
        raw = notify.mail(address, {"name": "n", "flow": 3, "state": "done", "text": "x"})
        assert b"is done" in raw


@pytest.mark.parametrize("topic", ["job.mira", "control.mira", "heartbeat.x", "refused.x", "flow"])
def test_where_nothing_of_ours_goes(topic: str):
    assert not accept.may_reply(topic, Settings())
    assert accept.may_reply("status.me", Settings())
    assert not accept.may_reply("mine", Settings(bus=BusSettings(jobs={"mine": "argo"})))


@pytest.mark.parametrize("topic", ["x" * 300, "a b", "#", "é"])
def test_what_is_no_topic_is_never_to_be_sent_to(topic: str):
    """The broker would not take it, however often it is tried."""
    assert not accept.may_reply(topic, Settings())
