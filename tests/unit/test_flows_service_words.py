"""What the workflow service writes: jobs for sites and for the hub, and what others are told."""

from __future__ import annotations

import contextlib
import email
import email.policy
import json
from typing import Any

import pytest

from pilotage import errors
from pilotage.bus import wire
from pilotage.bus.model import Control, Course, Input, Job
from pilotage.flow.model import Span, Step
from pilotage.hub.config import Flows
from pilotage.hub.flows import accept, edge, here, notify, post
from pilotage.hub.flows.edge import Address
from pilotage.hub.flows.model import Order, Prepared, Unfit
from pilotage.hub.flows.notify import Line
from pilotage.job.model import App, Command
from pilotage.rule import template

MINE = Address("abcd1234")


def order(step: Step, **more: Any) -> Order:
    facts: dict[str, Any] = {
        "flow": 3, "name": "atlas", "owner": "me", "tag": "", "step": "sim", "task": 9, "item": 0,
        "value": None, "number": 2, "key": "flow.3.9.2", "definition": step, "avoid": (),
        "inputs": (), "way": "bus", "site": "mira",
    }  # fmt: skip
    return Order(**{**facts, **more})


def test_a_job_for_a_site_asks_for_what_the_step_does():
    step = Step(
        application="simulate", parameters={"n": 5}, env={"A": "b"}, nodes=Span(2, 8),
        time=Span(600, 3600), work=7200, tasks=4, cpus=2, memory=10**9, gpus=1, queue="q",
        project="p", options=("--exclusive",), config="x = 1",
    )  # fmt: skip
    given = (Input(url="https://data.example.org/x", path="x"),)
    job = wire.decode(edge.job(order(step), Prepared(inputs=given), MINE))
    assert isinstance(job, Job)
    assert (job.site, job.key, job.name) == ("mira", "abcd1234.flow.3.9.2", "atlas/sim")
    assert (job.nodes, job.wall_time, job.tasks) == (8, 3600, 4)
    shape = job.shape
    assert (shape.nodes_least, shape.time_least, shape.work) == (2, 600, 7200)
    assert (job.resources.cpus, job.resources.gpus, job.resources.memory) == (2, 1, 10**9)
    assert (job.inputs, job.options, job.config) == (given, ("--exclusive",), "x = 1")


def test_the_same_attempt_is_the_same_message():
    one = order(Step(application="x", parameters={"b": 1, "a": 2}))
    assert edge.job(one, Prepared(), MINE) == edge.job(one, Prepared(), MINE)


@pytest.mark.parametrize(
    "step",
    [
        Step(application="x", parameters={"n": [1, 2]}),
        Step(application="x y"),
        Step(application="x", env={"A B": "c"}),
    ],
)
def test_what_no_site_would_take_is_not_sent(step: Step):
    with pytest.raises(Unfit, match="no site would take it"):
        edge.job(order(step), Prepared(), MINE)


def test_an_address_knows_its_own():
    assert MINE.attempt(MINE.key("flow.1.2.3")) == "flow.1.2.3"
    assert MINE.attempt("ffff0000.flow.1.2.3") == ""
    assert MINE.attempt("flow.1.2.3") == ""
    assert MINE.answers("mira") == "status.mira"
    topic, body = edge.control("cancel", "mira", ["flow.1.2.3"], MINE, "why\nnot")
    asked = wire.decode(body)
    assert isinstance(asked, Control)
    assert (topic, asked.keys) == ("control.mira", ("abcd1234.flow.1.2.3",))
    assert asked.reason == "why not"


def test_a_job_of_the_hub_says_just_what_was_filled_in():
    """What has braces after the templates of the flow were filled in has them on purpose."""
    step = Step(recipe={"kind": "command", "argv": ["echo", "{paths}"]}, parameters={"a": "{b}"})
    job = here.job(order(step, way="here", site=""), Prepared(folder="/x/{y}"))
    assert isinstance(job.spec.recipe, Command)
    written = (*job.spec.recipe.argv, job.spec.params["a"], job.spec.cwd)
    assert [template.render(one, {}) for one in written] == ["echo", "{paths}", "{b}", "/x/{y}"]
    assert (job.tag, job.owner, job.spec.name, len(job.key)) == ("flow:3", "me", "atlas/sim", 32)
    own = here.job(order(Step(application="fit"), way="here", site=""), Prepared())
    assert own.spec.recipe == App(app="fit")
    assert own.key == job.key, "the attempt makes the key"


# -- what others are told --------------------------------------------------------------------------


def line(state: str, **more: Any) -> Line:
    facts = {"id": 1, "time": 5.0, "flow": 3, "step": "", "task": 0, "number": 0, "words": "why"}
    return Line(**{**facts, "state": state, **more})


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
def test_argos_words(said: Line, wanted: list[str]):
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
        post.check(url, ("hooks.example.org",))


def test_webhooks_that_are_called():
    post.check("https://hooks.example.org/x?y=1", ("hooks.example.org",))
    post.check("https://hooks.example.org:444/x", ("hooks.example.org:444",))


@pytest.mark.parametrize("odd", ["\n", "\r\n", "\r", "\x00", "\u2028", "\x0b", "\x85"])
def test_nobody_writes_headers_of_a_mail(odd: str):
    said = {"name": f"n{odd}Bcc: all@place.example", "flow": 3, "state": "done", "text": "x"}
    raw = post.mail(f"me@place.example{odd}Bcc: all@place.example", said)
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
        raw = post.mail(address, {"name": "n", "flow": 3, "state": "done", "text": "x"})
        assert b"is done" in raw


@pytest.mark.parametrize("topic", ["job.mira", "control.mira", "heartbeat.x", "refused.x", "flow"])
def test_where_nothing_of_ours_goes(topic: str):
    assert not accept.may_reply(topic, Flows())
    assert accept.may_reply("status.me", Flows())


@pytest.mark.parametrize("topic", ["x" * 300, "a b", "#", "é"])
def test_what_is_no_topic_is_never_to_be_sent_to(topic: str):
    """The broker would not take it, however often it is tried."""
    assert not accept.may_reply(topic, Flows())
