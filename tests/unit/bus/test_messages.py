"""Messages of ours: what is taken is what was sent, and what is refused says which field."""

from __future__ import annotations

import json
import math
import re
import time
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.bus import fields, model, wire
from pilotage.bus.model import Control, Heartbeat, Input, Job, Status
from pilotage.job.model import State
from tests.corpus import injection
from tests.suite import every

JOB = {"v": 1, "kind": "job", "site": "mira", "application": "sim"}
FULL: dict[str, Any] = JOB | {
    "key": "run-7", "attempt": 2, "name": "a job", "description": "of\nmany lines",
    "parameters": {"events": 1000, "seed": 0.5, "fast": True, "label": "x y"},
    "config": "a = 1\nb = 2", "config_file": "in/run.cfg", "env": {"OMP_NUM_THREADS": "4"},
    "resources": {"cpus": 4, "memory": 8_000_000_000, "gpus": 1, "disk": 0}, "nodes": 128,
    "tasks": 64, "queue": "batch", "project": "atlas", "wall_time": 1800,
    "shape": {"nodes_least": 16, "time_least": 600, "work": 57_600},
    "options": ["--exclusive", "--constraint=knl"],
    "inputs": [
        {"url": "https://data.example.org/in/", "path": "in", "sha256": "0" * 64},
        {"url": "", "path": "small", "sha256": "0" * 64, "content": "eA=="},
    ],
    "outputs": [{"path": "out", "url": "sftp://data.example.org/out/", "below": "o"}],
    "reply": "status.atlas", "speech": "balsam", "job_id": 7, "argo_job_id": 9,
}  # fmt: skip
CONTROL = {
    "v": 1, "kind": "control", "site": "mira", "verb": "cancel", "jobs": [1], "keys": ["k"],
    "reason": "wrong", "reply": "me",
}  # fmt: skip
STATUS = {
    "v": 1, "kind": "status", "site": "mira", "job": 1, "key": "k", "job_id": 1, "argo_job_id": 2,
    "attempt": 1, "seq": 4, "state": "failed", "step": "run",
    "reason": {"class": "application", "code": "exit", "text": "it ended with 1"},
    "scheduler_id": "77.pbs01", "time": 1e9, "progress": 0.5, "read": 12,
    "left": [{"url": "https://d.org/x/", "digest": "0" * 64, "files": 2, "bytes": 9}],
    "stdout": "aGVsbG8K", "stderr": "", "result": "",
}  # fmt: skip
HEARTBEAT = {
    "v": 1, "kind": "heartbeat", "site": "mira", "time": 1e9, "version": "0.1.0", "epoch": 3,
    "since": 1e9, "draining": True, "drain": {"by": "eve", "why": "new disks", "since": 1e9},
    "counts": {"running": 3}, "outbox": 0, "certificate_days": 5.5, "disk_free": 10**12,
    "scheduler": {
        "batch": "slurm", "well": True, "since": 1e9, "text": "", "seen": 1e9,
        "queues": [
            {
                "name": "debug", "default": True, "open": True, "nodes": 4, "free_nodes": 2,
                "cpus": 32, "memory": 2**37, "time": 3600.0, "jobs": 2,
            },
        ],
    },
    "applications": ["sim"], "carries": ["sim"], "carried": 131_072, "rules": "9f",
}  # fmt: skip
CHAIN = {
    "v": 1, "kind": "chain", "key": "k", "name": "n", "description": "d", "user_id": "u",
    "group": "g", "username": "me", "email": "me@place.example", "inputs": FULL["inputs"],
    "outputs": FULL["outputs"], "jobs": [FULL], "reply": "r", "speech": "argo",
}  # fmt: skip
ANSWER = {
    "v": 1, "kind": "answer", "site": "mira", "time": 1e9, "verb": "cancel", "ok": True, "text": "",
    "draining": False, "counts": {"running": 3}, "more": False,
    "results": [{"job": 3, "key": "k", "ok": True, "state": "cancelled", "step": "run",
                 "attempt": 1, "text": "by alice"}],
}  # fmt: skip
REFUSAL = {
    "v": 1, "kind": "refusal", "site": "mira", "time": 1e9, "user": "alice", "topic": "job.mira",
    "key": "k", "job_id": 1, "argo_job_id": 2, "sha256": "0" * 64, "size": 12,
    "reason": {"class": "policy", "code": "denied", "text": "no"},
}  # fmt: skip
FLOW = {
    "v": 1, "kind": "flow", "key": "k", "flow": {"name": "f", "step": {}}, "params": {"n": [1]},
    "reply": "r",
}  # fmt: skip
COURSE = {
    "v": 1, "kind": "course", "flow": 3, "key": "k", "name": "f", "seq": 1, "step": "fit",
    "task": 7, "attempt": 1, "state": "skipped", "text": "why", "time": 1e9,
}  # fmt: skip
ALL = {
    "flow": FLOW, "course": COURSE, "job": FULL, "control": CONTROL, "status": STATUS,
    "heartbeat": HEARTBEAT, "chain": CHAIN, "answer": ANSWER, "refusal": REFUSAL,
}  # fmt: skip


def body(value: object) -> bytes:
    return json.dumps(value).encode()


def refused(value: object) -> errors.BadMessage:
    with pytest.raises(errors.BadMessage) as caught:
        wire.decode(value if isinstance(value, bytes) else body(value))
    return caught.value


def decoded(raw: bytes) -> model.Message | errors.BadMessage:
    try:
        return wire.decode(raw)
    except errors.BadMessage as error:
        return error


@pytest.mark.parametrize("kind", ALL)
def test_what_was_sent_is_what_is_read(kind: str):
    found = wire.decode(body(ALL[kind]))
    assert json.loads(wire.encode(found)) == ALL[kind]
    assert wire.decode(wire.encode(found)) == found


def test_states_are_those_of_jobs():
    assert set(get_args(fields.State)) == {str(state) for state in State}


def test_a_job_needs_little():
    assert wire.decode(body(JOB)) == Job(site="mira", application="sim")


def test_what_can_be_read_in_two_ways_is_refused():
    with every.cases() as case:
        for raw in injection.RAW:
            with case(raw[:40]):
                start = time.monotonic()
                assert str(refused(raw))
                assert time.monotonic() - start < 20  # nothing grows with the square of the size


@pytest.mark.parametrize(
    "change, field",
    [
        ({"state": "RUNNING"}, "state"),
        ({"scheduler_id": 12}, "scheduler_id"),
        ({"working_directory": "/"}, "working_directory"),
        ({"application": ""}, "application"),
        ({"application": 1}, "application"),
        ({"nodes": 0}, "nodes"),
        ({"wall_time": -1}, "wall_time"),
        ({"queue": "a b"}, "queue"),
        ({"inputs": [{"url": "x"}]}, "inputs[0].url"),
        ({"outputs": [{"url": "http://x/", "path": "../y"}]}, "outputs[0].path"),
        ({"resources": {"cpus": 0}}, "resources.cpus"),
        ({"resources": {"cores": 1}}, "resources.cores"),
        ({"name": "a\nb"}, "name"),
        ({"config_file": "x\n"}, "config_file"),
        ({"parameters": {"x": "\x1b[2J"}}, "parameters.x"),
        ({"parameters": {"x": "a\nb"}}, "parameters.x"),
        ({"parameters": {"a": 1, "x": [1]}}, "parameters.x"),
        ({"parameters": {"a": 1, "x": "y" * 5000}}, "parameters.x"),
        ({"parameters": {"a": 1, "x;y": 1}}, "parameters.x;y"),
        ({"env": {"A": "1", "B=": "1"}}, "env.B="),
        ({"v": 2}, "v"),
        ({"v": True}, "v"),
        ({"kind": "order"}, "kind"),
        ({"kind": ["job"]}, "kind"),
    ],
)
def test_a_refusal_names_the_field(change: dict[str, Any], field: str):
    error = refused(JOB | change)
    assert error.field == field
    assert field in str(error)


@pytest.mark.parametrize(
    "change, field",
    [
        ({"jobs": [], "keys": []}, "jobs"),
        ({"verb": "drain", "keys": []}, "jobs"),
        ({"verb": "resume", "jobs": []}, "keys"),
        ({"verb": "reboot"}, "verb"),
    ],
)
def test_control_is_of_jobs_or_of_the_site(change: dict[str, Any], field: str):
    assert refused(CONTROL | change).field == field


def test_the_site_is_asked_and_drained_without_jobs():
    for verb in ("query", "drain", "resume"):
        found = wire.decode(body({"v": 1, "kind": "control", "site": "mira", "verb": verb}))
        assert isinstance(found, Control)


def texts(value: Any, path: tuple[Any, ...] = ()):
    """Yield the path of every text in a message."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from texts(inner, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from texts(inner, (*path, number))


def changed(value: Any, path: tuple[Any, ...], new: str) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


@pytest.mark.parametrize("kind", ALL)
def test_no_field_lets_a_text_become_something_else(kind: str):
    message = ALL[kind]
    for path in texts(message):
        if path[0] == "jobs" and path[2] not in ("application", "config", "key", "parameters"):
            continue  # tried as fields of a job
        for value in injection.VALUES:
            sent = changed(message, path, value)
            found = decoded(body(sent))
            if isinstance(found, errors.BadMessage):
                assert str(path[0]) in str(found)
                continue
            assert json.loads(wire.encode(found)) == sent
            many = ".".join(map(str, path[-2:] if path[0] != "jobs" else path[2:]))
            if many not in wire.MANY_LINES:
                assert value.isprintable() or not wire.BAD.search(value)


@given(st.text())
def test_any_text_in_a_parameter_comes_out_as_it_is_or_not_at_all(value: str):
    found = decoded(json.dumps(JOB | {"parameters": {"x": value}}).encode())
    if isinstance(found, errors.BadMessage):
        assert "parameters" in str(found)
    else:
        assert isinstance(found, Job)
        assert found.parameters == {"x": value}


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from([*FULL, "x"]), PLAIN), st.sampled_from(sorted(ALL)))
def test_nothing_but_a_message_or_a_refusal_comes_of_anything(change: Any, kind: str):
    found = decoded(json.dumps(ALL[kind] | change).encode())
    if not isinstance(found, errors.BadMessage):
        assert wire.decode(wire.encode(found)) == found


@given(st.binary(max_size=200))
def test_bytes_are_a_message_or_a_refusal(raw: bytes):
    with pytest.raises(errors.BadMessage):
        wire.decode(raw)


@given(PLAIN)
def test_what_is_loaded_is_what_json_says(value: Any):
    source = json.dumps({"config": value}).encode()
    try:
        found = wire.load(source)
    except errors.BadMessage:
        return
    assert found == json.loads(source)
    assert "NaN" not in json.dumps(found) or isinstance(value, (str, list, dict))


def test_the_comma_that_ends_the_list_on_the_slide_is_taken():
    source = b'{"a": [1, 2, ], "b": ",}", "c": {"d": ",]",\n},\n}'
    assert wire.load(source) == {"a": [1, 2], "b": ",}", "c": {"d": ",]"}}


# -- keys ----------------------------------------------------------------------------------------


def job(**change: Any) -> Job:
    return msgspec.convert(FULL | change, Job)


def test_the_same_message_is_the_same_job():
    again = json.loads(json.dumps(dict(reversed(FULL.items()))))
    assert wire.message_key(job(), "alice") == wire.message_key(
        msgspec.convert(again, Job), "alice"
    )


def test_a_key_is_of_its_user_and_attempt():
    mine = wire.message_key(job(), "alice")
    assert mine.digits != wire.message_key(job(), "bob").digits
    assert mine.digits != wire.message_key(job(attempt=3), "alice").digits
    assert len(mine.digits) == 32


def test_the_same_key_with_another_body_is_a_conflict():
    old, new = wire.message_key(job(), "alice"), wire.message_key(job(nodes=1), "alice")
    assert old.digits == new.digits
    assert old.body != new.body
    assert old.digits != wire.message_key(job(nodes=1), "bob").digits


def test_without_a_key_the_numbers_of_argo_are_it():
    one, two = job(key=""), job(key="", nodes=1)
    assert wire.message_key(one, "a").origin == "argo"
    assert wire.message_key(one, "a").digits == wire.message_key(two, "a").digits
    assert wire.message_key(one, "a").body != wire.message_key(two, "a").body


def test_without_anything_the_body_is_the_key():
    one = job(key="", job_id=0)
    assert wire.message_key(one, "a").origin == "body"
    assert (
        wire.message_key(one, "a").digits
        != wire.message_key(job(key="", job_id=0, nodes=1), "a").digits
    )


def test_nobody_can_write_a_key_that_is_made_of_something_else():
    made = wire.message_key(job(key="", job_id=0), "a")
    assert wire.message_key(job(key=made.body, job_id=0), "a").digits != made.digits


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.integers(1, 3)), max_size=9))
def test_two_jobs_share_a_key_only_if_they_are_the_same(seen):
    found: dict[str, Any] = {}
    for user, attempt, number in seen:
        one = wire.message_key(job(key=f"k{number}", attempt=attempt), user)
        assert found.setdefault(one.digits, (user, attempt, number)) == (user, attempt, number)


def test_a_status_says_all_there_is_to_say():
    found = wire.decode(body(STATUS))
    assert isinstance(found, Status)
    assert found.reason.kind == "application"
    assert json.loads(wire.encode(found))["reason"]["class"] == "application"
    beat = wire.decode(body(HEARTBEAT))
    assert isinstance(beat, Heartbeat)
    assert not math.isnan(beat.certificate_days or 0)
    assert model.VERSION == 1


@pytest.mark.parametrize(
    "value",
    ["plain", "ü", 'a "quote"', "back\\slash", "tab\t", "\u202e", "\x7f", "\u2028", 3, 1.5, True,
     math.nan, math.inf],
)  # fmt: skip
@pytest.mark.parametrize("inputs", [0, 30])
def test_what_we_write_is_checked_as_it_will_be_read(value: Any, inputs: int):
    some = tuple(Input(url="https://data.example.org/x") for _ in range(inputs))
    sent = wire.encode(
        Job(site="here", application="sim", parameters={"p": value}, inputs=some)
    )  # fmt: skip
    try:
        wire.decode(sent)
    except errors.BadMessage as error:
        with pytest.raises(errors.BadMessage, match=re.escape(error.message)):
            wire.check(sent, Job)
    else:
        wire.check(sent, Job)
