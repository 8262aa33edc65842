"""Messages that are no good: each is refused with a word and kept, and the agent goes on."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiormq
import pytest

from testbed.rabbit import Rabbit
from tests.corpus.injection import RAW
from tests.rigs.broker import edge_agent, invariants
from tests.rigs.broker.edge_agent import SRC, USER, Edge

pytestmark = pytest.mark.slow
#: So much is kept of a message.
KEPT = 4096


class Case(NamedTuple):
    """A message that is refused."""

    name: str
    #: Makes the body, or what becomes one, for a site.
    make: Callable[[Edge], bytes | dict[str, Any]]
    #: The word that it is refused with, and something of the sentence.
    code: str
    words: str = ""
    #: Whether the broker is told who sends it.
    named: bool = True


def ours(**fields: Any) -> Callable[[Edge], dict[str, Any]]:
    """Make a job with further fields, or with others in their place."""
    return lambda edge: edge.job("count") | fields


def written(more: str) -> Callable[[Edge], bytes]:
    """Make a job with more in it than JSON's writers would write."""
    return lambda edge: (json.dumps(edge.job("count"))[:-1] + f", {more}}}").encode()


def balsam(**fields: Any) -> Callable[[Edge], dict[str, Any]]:
    """Make a definition of Balsam's."""
    return lambda edge: {"site": edge.site, "application": "count", "name": "b"} | fields


def query(edge: Edge) -> dict[str, Any]:
    """Make a control."""
    return {"v": 1, "kind": "control", "site": edge.site, "verb": "query"}


CASES = (
    Case("no_json", lambda _: b"no JSON", "unreadable", "is not JSON"),
    Case("nothing", lambda _: b"", "unreadable", "is not JSON"),
    Case("no_object", lambda _: b"[]", "unreadable", "JSON object"),
    Case("no_utf8", lambda _: b'{"v": 1, "name": "\xff"}', "unreadable", "UTF-8"),
    Case("huge", ours(description="x" * 2_000_000), "unreadable", "bytes"),
    Case("deep", written(f'"name": {"[" * 5000}{"]" * 5000}'), "unreadable", "deep"),
    Case("unknown_field", ours(argv=["sh"]), "unreadable", "argv"),
    Case("forbidden_field", ours(state="RUNNING"), "unreadable", "the site's to say"),
    Case("owner_in_body", ours(user="root"), "unreadable", "certificate"),
    Case("wrong_type", ours(nodes="2"), "unreadable", "nodes"),
    Case("wrong_type_of_table", ours(parameters=["label"]), "unreadable", "parameters"),
    Case("fraction", ours(nodes=1.5), "unreadable", "nodes"),
    Case("too_many_nodes", ours(nodes=99), "limits", "nodes"),
    Case("not_a_number", written('"progress": NaN'), "unreadable", "NaN"),
    Case("infinite", written('"nodes": 1e999'), "unreadable", "too large"),
    Case("twice_the_same", written('"site": "elsewhere"'), "unreadable", "twice"),
    Case("half_a_character", written(r'"name": "\ud800"'), "unreadable", "U+D800"),
    Case("turned_around", ours(name="\u202egnp.exe"), "unreadable", "U+202E"),
    Case("looks_alike", ours(application="\u0441ount"), "unreadable", "application"),
    Case("null_character", ours(name="a\0b"), "unreadable", "U+0000"),
    Case("wrong_site", ours(site="elsewhere"), "wrong_site", "elsewhere"),
    Case("no_site", lambda _: {"v": 1, "kind": "job", "application": "x"}, "unreadable", "site"),
    Case("no_application", ours(application="nothing"), "no_application", "nothing"),
    Case("disabled", ours(application="disabled"), "limits", "disabled"),
    Case("mistake_in_its_file", ours(application="broken"), "no_application", "mistake"),
    Case("not_for_this_user", ours(application="private"), "denied", USER),
    Case("newer_version", ours(v=2), "unreadable", "version 1"),
    Case("older_version", ours(v=0), "unreadable", "version 1"),
    Case("another_kind", ours(kind="heartbeat"), "unreadable"),
    Case("a_control", query, "wrong_kind", "control"),
    Case("no_parameter_like_that", ours(parameters={"x": 1}), "denied", "no parameter"),
    Case("bad_parameter", ours(parameters={"label": "a b"}), "denied", "label"),
    Case("environment", ours(env={"LD_PRELOAD": "x.so"}), "denied", "LD_PRELOAD"),
    Case("options", ours(options=["--uid=0"]), "denied", "--uid"),
    Case("reply_elsewhere", ours(reply="job.elsewhere"), "denied", "job.elsewhere"),
    Case("nobody_knows_who", ours(), "no_user", "verified no name", named=False),
    Case("argo_chain", lambda e: {"job_id": 7, "subjobs": [balsam()(e)]}, "wrong_kind", "chain"),
    Case("balsam_skips_steps", balsam(state="PREPROCESSED"), "unreadable", "state"),
    Case("balsam_adopts", balsam(scheduler_id=77), "unreadable", "scheduler_id"),
    Case("balsam_wrong_type", balsam(num_nodes="4"), "unreadable", "num_nodes"),
)  # fmt: skip


class Sent(NamedTuple):
    """What was sent, and what was said of it."""

    edge: Edge
    #: By name what was sent.
    bodies: dict[str, bytes]
    #: What `pilotage agent status` lists.
    listed: list[dict[str, Any]]

    def refusals(self, name: str) -> list[dict[str, Any]]:
        sha256 = digest(self.bodies[name])
        return [one for one in refusals(self.edge) if one["sha256"] == sha256]


def refusals(edge: Edge) -> list[dict[str, Any]]:
    return [one.said for one in edge.raw(f"refused.{edge.site}")]


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def as_bytes(made: bytes | dict[str, Any]) -> bytes:
    return made if isinstance(made, bytes) else json.dumps(made).encode()


def status(edge: Edge) -> dict[str, Any]:
    """Ask the command of a person at the site."""
    words = [sys.executable, "-m", "pilotage", "agent", "status", str(edge.root), "--json"]
    said = subprocess.run(
        [*words, "--refused", "10000"], env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True, check=True, timeout=edge_agent.PATIENCE,
    )  # fmt: skip
    return dict(json.loads(said.stdout)["agent"])


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory, rabbit: Rabbit) -> Iterator[Edge]:
    """Serve a site to all of these tests."""
    with edge_agent.at_local(tmp_path_factory.mktemp("messages") / "e", rabbit) as one:
        one.change({"bus": {"jobs": {f"job.{one.site}": "", f"open.{one.site}": "guest"}}})
        one.programs.add("disabled", "echo no", enabled=False)
        one.programs.add("private", "echo no", users=["bob"])
        one.programs.add("broken", "echo no", executable="no/whole/path")
        with one.up():
            yield one


@pytest.fixture(scope="module")
def sent(edge: Edge) -> Sent:
    """Send all of it in one go, and wait until each was answered."""
    bodies = {case.name: as_bytes(case.make(edge)) for case in CASES}
    for case in CASES:
        edge.send(bodies[case.name], named=case.named)
    wanted = {digest(one) for one in bodies.values()}
    assert len(wanted) == len(CASES)
    edge.wait(lambda: wanted.issubset({one["sha256"] for one in refusals(edge)}))
    return Sent(edge, bodies, status(edge)["refused"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_is_refused_with_a_word(sent: Sent, case: Case):
    [said] = sent.refusals(case.name)
    reason = said["reason"]
    assert reason["code"] == case.code, reason
    assert case.words in reason["text"], reason
    assert said["user"] == (USER if case.named else "")
    assert (said["v"], said["site"]) == (1, sent.edge.site)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_person_at_the_site_finds_it_with_the_reason(sent: Sent, case: Case):
    body = sent.bodies[case.name]
    begin = base64.b64encode(body[:KEPT]).decode()
    found = [one for one in sent.listed if (one["size"], one["body"]) == (len(body), begin)]
    [one] = [one for one in found if one["user"] == (USER if case.named else "")]
    [said] = sent.refusals(case.name)
    assert (one["code"], one["reason"]) == (said["reason"]["code"], said["reason"]["text"])


def test_whoever_can_be_told_is_told(sent: Sent):
    """A sender knows its message by the key, whatever else was wrong with it."""
    edge = sent.edge
    for name in ("unknown_field", "disabled", "too_many_nodes", "reply_elsewhere", "newer_version"):
        [said] = sent.refusals(name)
        edge.wait_ended(said["key"])
        [told] = edge.statuses(said["key"])
        assert (told["state"], told["job"], told["reason"]) == ("rejected", 0, said["reason"])
    assert edge.raw("job.elsewhere") == []


def test_nothing_ran_and_the_agent_goes_on(sent: Sent):
    edge = sent.edge
    # How it is, is written down every now and then.
    edge.wait(lambda: status(edge)["state"] == "well")
    key = edge.post("count")
    edge.wait_ended(key)
    invariants.holds(edge, [key])
    assert {one.job for one in edge.programs.starts()} <= set(edge.jobs())
    applications = {name for (name,) in edge.query("SELECT application FROM edge_job")}
    assert applications == {"count"}


def test_bodies_that_nobody_should_read_are_all_refused(edge: Edge):
    bodies = [one for one in dict.fromkeys(RAW) if one not in (b"", b"[]")]
    jobs = len(edge.jobs())
    edge.send(*bodies, user="bob")
    wanted = {digest(one) for one in bodies}
    edge.wait(lambda: wanted.issubset({one["sha256"] for one in refusals(edge)}))
    assert len(edge.jobs()) == jobs


def test_the_same_bad_message_is_kept_once(edge: Edge):
    body = b"the same again"
    edge.send(body, body, body)
    key = edge.post("count")
    edge.wait_ended(key)
    edge.wait(lambda: digest(body) in {one["sha256"] for one in refusals(edge)})
    [count] = [one["count"] for one in status(edge)["refused"] if one["size"] == len(body)]
    assert count == 3
    assert [one["sha256"] for one in refusals(edge)].count(digest(body)) == 1


def test_the_same_key_with_another_body_is_a_conflict(edge: Edge):
    key = edge.post("count", parameters={"label": "one"})
    edge.wait_ended(key)
    done = edge.end(key)
    other = as_bytes(edge.job("count", key, parameters={"label": "two"}))
    edge.send(other)
    edge.wait(lambda: any(one["sha256"] == digest(other) for one in refusals(edge)))
    [said] = [one for one in refusals(edge) if one["sha256"] == digest(other)]
    assert said["reason"]["code"] == "conflict"
    assert done is not None
    assert f"job {done['job']}" in said["reason"]["text"]
    # Under the name of somebody else it is another job's key.
    theirs = as_bytes(edge.job("count", key, parameters={"label": "three"}))
    edge.send(theirs, user="bob")
    mine = "SELECT count(*) FROM edge_job WHERE token = ?"
    edge.wait(lambda: edge.query(mine, key) == [(2,)])
    edge.wait(lambda: len(edge.programs.ends()) == len(edge.jobs()))
    invariants.i1_started_once(edge)


def test_what_comes_by_a_topic_of_somebody_s_is_theirs(edge: Edge):
    key = edge.job("count")["key"]
    edge.send(edge.job("count", key), topic=f"open.{edge.site}", named=False)
    edge.wait_ended(key)
    invariants.holds(edge, [key])
    owner = edge.query("SELECT user FROM edge_job WHERE token = ?", key)
    assert owner == [("guest",)]
    # Who says who they are is believed, since the broker has checked it.
    mine = edge.job("count")["key"]
    edge.send(edge.job("count", mine), topic=f"open.{edge.site}")
    edge.wait_ended(mine)
    assert edge.query("SELECT user FROM edge_job WHERE token = ?", mine) == [(USER,)]


def test_nobody_can_pose_as_somebody_else(edge: Edge):
    made = edge.job("private")
    with pytest.raises(aiormq.exceptions.ChannelPreconditionFailed):
        edge.send(made, posing="bob", patience=0)
    key = edge.post("count")
    edge.wait_ended(key)
    assert edge.statuses(made["key"]) == []
    assert edge.query("SELECT job FROM edge_job WHERE token = ?", made["key"]) == []


def test_a_job_that_was_forgotten_is_not_run_again(tmp_path: Path, rabbit: Rabbit):
    keep = {"done": "1s", "failed": "1s"}
    with edge_agent.at_local(tmp_path / "e", rabbit, settings={"keep": keep}) as edge, edge.up():
        made = edge.job("count")
        key = made["key"]
        edge.send(made)
        edge.wait_ended(key)
        edge.wait(lambda: edge.jobs() == {})
        edge.send(made)
        edge.wait(lambda: refusals(edge))
        [said] = refusals(edge)
        assert said["reason"]["code"] == "forgotten"
        assert (said["key"], said["user"]) == (key, USER)
        other = edge.post("count")
        edge.wait_ended(other)
        assert len(edge.programs.starts()) == 2
