"""What `pilotage site send` makes of a definition, and what it does not send at all."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from pilotage.base import errors
from pilotage.bus.amqp.model import Broker
from pilotage.bus.model import Job
from pilotage.cli import site_send
from pilotage.cli.common import Common

JOB = {"v": 1, "kind": "job", "site": "mira", "application": "sim", "parameters": {"events": 10}}


@pytest.mark.parametrize(
    "content, said, hint",
    [
        ('{"v": 1, "kind": "job", "site": "mira"}', "`application` is missing", ""),
        (json.dumps({**JOB, "nodes": "4"}), "`nodes`", ""),
        (json.dumps({**JOB, "state": "done"}), "no field `state`", "the site's to say"),
        (json.dumps({**JOB, "site": "theta"}), "is for the site theta", "site send theta"),
        (
            json.dumps({"v": 1, "kind": "chain", "jobs": [JOB]}),
            "a chain of jobs",
            "by itself",
        ),
        (
            json.dumps({"v": 1, "kind": "control", "site": "mira", "verb": "drain"}),
            "no job definition",
            "site control mira",
        ),
        ("{", "not JSON", ""),
    ],
)
def test_what_no_site_would_take_is_not_sent(tmp_path: Path, content: str, said: str, hint: str):
    (tmp_path / "pilotage.toml").touch()
    file = tmp_path / "job.json"
    file.write_text(content)
    with pytest.raises(errors.UsageError) as found:
        site_send.send("mira", str(file), at=Common(project=tmp_path))
    assert str(file) in str(found.value)
    assert said in str(found.value)
    assert hint in found.value.hint


def made(given: str = "", user: str = "", **more: object) -> Job:
    job = msgspec.convert({**JOB, **more}, Job)
    return site_send.addressed(job, "mira", "job.json", given, user)


def test_the_same_definition_is_the_same_message():
    assert made() == made()
    assert made().key != made(name="another").key
    assert made(user="alice") == made(user="alice")
    assert len(made().key) == 32
    assert made().reply == f"status.{made().key}"


def test_what_the_sender_chose_stays():
    assert made(key="run-7").key == "run-7"
    assert made(key="mine", user="alice").reply == "status.alice"
    assert made("given", key="mine").key == "given"
    assert made(reply="status.atlas").reply == "status.atlas"
    # What a name of a certificate may hold, a topic may not.
    assert made(user="CN=alice,O=a b").reply.startswith("status.")
    assert " " not in made(user="CN=alice,O=a b").reply


def test_a_password_in_the_address_of_a_broker_is_not_shown():
    broker = Broker(url="amqp://me:secret@broker.example.org:5672/lab")
    assert broker.place == "amqp://broker.example.org:5672/lab"


def test_a_key_that_cannot_be_one_is_refused():
    with pytest.raises(errors.BadMessage) as found:
        made("with space")
    assert found.value.field == "key"
