"""What a message becomes, and why not: nothing but the broker's word says whose it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.agent import ingest
from pilotage.agent.app import files
from pilotage.agent.app.model import Application, AppLimits, Staging
from pilotage.agent.model import Accepted, Rejected
from pilotage.agent.registry import Registry
from pilotage.agent.settings import DialledHub, Settings, SiteBroker
from pilotage.base import errors
from pilotage.batch.model import Defaults, SiteSettings
from pilotage.job import template
from pilotage.job.model import Command
from tests.corpus import injection
from tests.rigs.broker import agent_parts
from tests.suite import every

SETTINGS = agent_parts.settings()


def find(name: str) -> Application:
    if name != "sim":
        raise errors.NotFound(f"there is no application `{name}`")
    return agent_parts.app()


def judged(
    sent: bytes, user: str = "alice", settings: Settings = SETTINGS, app: Application | None = None
) -> Accepted | Rejected:
    return ingest.judge(sent, user, find if app is None else lambda _: app, settings)


def accepted(sent: bytes, **more: Any) -> Accepted:
    found = judged(sent, **more)
    assert isinstance(found, Accepted), found
    return found


def refused(sent: bytes, **more: Any) -> Rejected:
    found = judged(sent, **more)
    assert isinstance(found, Rejected), found
    return found


def test_a_job_becomes_a_batch_job_of_this_site():
    sent = agent_parts.body(nodes=2, tasks=4, queue="batch", project="atlas", wall_time=60,
                       resources={"cpus": 1, "memory": 0}, options=["--exclusive"])  # fmt: skip
    spec = accepted(sent).spec
    assert (spec.site, spec.via) == ("mira", "batch")
    assert spec.resources.memory is None
    assert spec.resources.time == 60
    assert (spec.allocation.nodes, spec.allocation.tasks) == (2, 4)
    assert (spec.allocation.queue, spec.allocation.account) == ("batch", "atlas")
    assert spec.allocation.extra == ("--exclusive",)


def test_what_is_left_open_is_filled_in_before_anything_is_counted():
    limits = AppLimits(queues=("long", "short"), projects=("p",), time="30m")
    found = accepted(agent_parts.body(), app=agent_parts.app(limits=limits))
    assert (found.job.queue, found.job.project, found.job.wall_time) == ("long", "p", 1800)
    assert found.queue == "long"
    site = agent_parts.settings(batch=SiteSettings(batch="local", defaults=Defaults(queue="usual")))
    assert accepted(agent_parts.body(), settings=site).queue == "usual"


def test_a_job_carries_inputs_where_its_application_or_its_hub_allows_it():
    sent = agent_parts.body(inputs=[{"path": "a", "content": "eA=="}])
    dials = agent_parts.settings(hub=DialledHub(url="https://hub.example.org:8420"))
    plain, open_ = agent_parts.app(), agent_parts.app(staging=Staging(protocols=("message",)))
    assert refused(sent, app=plain).reason.startswith("`inputs[0].content` is given")
    assert accepted(sent, app=plain, settings=dials).job.inputs[0].content == "eA=="
    assert accepted(sent, app=open_).job.inputs[0].path == "a"
    barred = agent_parts.app(staging=Staging(protocols=("https",)))
    assert "neither `message` nor `hub`" in refused(sent, app=barred, settings=dials).reason


def test_the_same_key_of_two_users_is_two_jobs():
    sent = agent_parts.body(key="k")
    assert accepted(sent).key.digits != accepted(sent, user="bob").key.digits
    assert accepted(sent).key == accepted(agent_parts.body(key="k")).key


@pytest.mark.parametrize("field", ["user", "owner", "username", "state", "scheduler_id"])
def test_a_message_cannot_say_whose_it_is_or_where_it_stands(field: str):
    found = refused(agent_parts.body(**{field: "root"}))
    assert found.code == "unreadable"
    assert field in found.reason


def test_without_a_name_nobody_is_believed():
    assert refused(agent_parts.body(), user="").code == "no_user"


@pytest.mark.parametrize(
    "more, code, words",
    [
        ({"site": "other"}, "wrong_site", "`other`"),
        ({"application": "rm"}, "no_application", "`rm`"),
        ({"nodes": 5}, "limits", "`nodes`"),
        ({"nodes": 5, "env": {"LD_PRELOAD": "/x.so"}}, "denied", "`nodes`"),
        ({"env": {"LD_PRELOAD": "/x.so"}}, "denied", "LD_PRELOAD"),
        ({"parameters": {"events": "; rm"}}, "denied", "events"),
        ({"options": ["--comment=x"]}, "denied", "this site does not allow"),
        ({"options": ["--wrap=x"]}, "denied", "--wrap"),
        ({"reply": "job.mira"}, "denied", "`reply`"),
        ({"reply": "heartbeat.mira"}, "denied", "`reply`"),
        ({"inputs": [{"url": "https://169.254.169.254/x"}]}, "denied", "inputs[0].url"),
        ({"v": 2}, "unreadable", "`v`"),
    ],
)
def test_what_is_not_allowed_is_refused_with_the_reason(
    more: dict[str, Any], code: str, words: str
):
    found = refused(agent_parts.body(**more))
    assert found.code == code
    assert words in found.reason


def test_all_reasons_are_told_at_once():
    found = refused(agent_parts.body(nodes=5, tasks=100, reply="job.mira"))
    assert all(word in found.reason for word in ("nodes", "tasks", "reply"))


def test_replies_go_where_the_site_lets_them():
    bus = SiteBroker(url="amqps://x/", replies=("status.*", "argo.**"))
    one = agent_parts.settings(bus=bus)
    for topic in ("status.alice", "argo.a.b"):
        assert accepted(agent_parts.body(reply=topic), settings=one).job.reply == topic
    assert refused(agent_parts.body(reply="status.a.b"), settings=one).code == "denied"


def test_a_chain_is_for_a_hub_and_its_sender_hears_so():
    job = json.loads(agent_parts.body())
    chain = {"v": 1, "kind": "chain", "key": "c", "jobs": [job], "reply": "status.x"}
    found = refused(json.dumps(chain).encode())
    assert found.code == "wrong_kind"
    assert found.job is not None
    assert (found.job.key, found.job.reply) == ("c", "status.x")


@pytest.mark.parametrize("kind", ["control", "status", "heartbeat"])
def test_what_is_no_job_is_no_job(kind: str):
    more: dict[str, Any] = {"verb": "drain"} if kind == "control" else {}
    if kind == "status":
        more = {"job": 1, "seq": 1, "state": "done", "time": 1}
    if kind == "heartbeat":
        more = {"time": 1, "version": "1"}
    sent = {"v": 1, "kind": kind, "site": "mira"} | more
    assert refused(json.dumps(sent).encode()).code == "wrong_kind"


def test_who_sent_what_nobody_understands_can_know_it_again():
    found = refused(agent_parts.body(key="k7", job_id=5, reply="status.me", nodes=0))
    assert found.job is not None
    assert (found.job.key, found.job.job_id, found.job.reply) == ("k7", 5, "status.me")
    theirs = refused(json.dumps({"application": "sim", "job_id": 9, "state": "RUNNING"}).encode())
    assert theirs.job is not None
    assert (theirs.job.speech, theirs.job.job_id) == ("balsam", 9)
    assert refused(b"\x00\xff").job is None


def test_the_definition_of_the_slides_is_taken():
    sent = {"name": "j", "site": "mira", "application": "sim", "num_nodes": 2,
            "wall_time_minutes": 30, "scheduler_config": "file.cfg", "argo_job_id": 3}  # fmt: skip
    found = accepted(json.dumps(sent).encode())
    assert found.job.nodes == 2
    assert len(found.notes) == 1


def test_what_can_be_read_in_two_ways_is_refused():
    with every.cases() as case:
        for raw in injection.RAW:
            with case(raw[:40]):
                assert refused(raw).reason


FIELDS = ("name", "description", "key", "queue", "project", "reply", "config", "config_file",
          "application", "site")  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
def test_no_text_becomes_a_template_or_a_command(field: str):
    for value in injection.VALUES:
        found = judged(agent_parts.body(**{field: value}))
        if isinstance(found, Rejected):
            assert found.reason
            continue
        spec = found.spec
        assert isinstance(spec.recipe, Command)
        assert template.argv(spec.recipe.argv, {}) == [agent_parts.TRUE]
        assert template.render(spec.name, {}) == found.job.application
        assert spec.allocation.queue == found.job.queue
        assert not spec.params
        assert not spec.env


@given(st.binary(max_size=300), st.text(max_size=20))
def test_any_bytes_are_a_verdict(raw: bytes, user: str):
    assert isinstance(judged(raw, user=user), Accepted | Rejected)


# -- the registry --------------------------------------------------------------------------------


def test_an_application_is_read_anew_when_its_file_changes(tmp_path: Path):
    registry = Registry(tmp_path)
    with pytest.raises(errors.NotFound):
        registry.find("sim")
    files.write(tmp_path, "sim", agent_parts.app())
    first = registry.find("sim")
    assert registry.find("sim") is first
    files.switch(tmp_path, "sim", enabled=False)
    assert not registry.find("sim").enabled
    files.file_of(tmp_path, "sim").unlink()
    with pytest.raises(errors.NotFound):
        registry.find("sim")


def test_a_file_that_others_may_write_describes_nothing(tmp_path: Path):
    file = files.write(tmp_path, "sim", agent_parts.app())
    file.chmod(0o666)
    with pytest.raises(errors.ConfigError, match="written by others"):
        Registry(tmp_path).find("sim")
    verdict = ingest.judge(agent_parts.body(), "alice", Registry(tmp_path).find, SETTINGS)
    assert isinstance(verdict, Rejected)
    assert str(tmp_path) not in verdict.reason


@pytest.mark.parametrize("name", ["../sim", "a/b", "", ".", "..", "x\x00y", "x" * 300])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str):
    (tmp_path / "sim.toml").write_text("")
    with pytest.raises((errors.NotFound, errors.ConfigError)):
        Registry(tmp_path).find(name)
