"""Definitions of Balsam and Argo become messages of ours; our states are told in their words."""

from __future__ import annotations

import itertools
import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.bus import balsam, fields, wire
from pilotage.bus.model import Chain, Control, Input, Job, Output, Reason, Status
from tests.corpus import injection
from tests.unit.bus.test_messages import PLAIN

#: As it stands on the slide, comma and all.
SLIDE = b"""{
    "name": "jobname",
    "description": "a job to run",
    "site": "site_name",
    "argo_job_id": 1507945011064986,
    "queue": "batch_queue_name",
    "project": "batch_project_to_charge",
    "wall_time_minutes": 30,
    "num_nodes": 128,
    "processes_per_node": 64,
    "scheduler_config": "file_to_config_scheduler.cfg",
    "application": "unique_application_name",
    "config_file": "file_to_config_app.cfg",
    "input_url": "protocol://server.name.gov/path/to/input/files",
    "output_url": "protocol://server.name.gov/path/to/place/output/files",
}
"""
BALSAM: dict[str, Any] = wire.load(SLIDE)
#: As the original's programs send it.
SERIAL = BALSAM | {
    "job_id": 1507945011064987, "scheduler_id": 0, "state": "CREATED", "working_directory": "",
    "time_created": "2017-10-14 01:36:51 +0000", "time_modified": "2017-10-14 01:36:51 +0000",
    "time_job_started": None, "time_job_finished": None,
}  # fmt: skip
ARGO = {
    "name": "jobname",
    "description": "some jobs to run",
    "user_id": "customizable_user_id_for_tracking",
    "group_identifier": "customizable_user_id_for_tracking_groups_of_jobs",
    "username": "username",
    "email": "username@place.com",
    "input_url": "protocol://server.name.gov/path/to/input/files",
    "output_url": "protocol://server.name.gov/path/to/place/output/files",
    "subjobs": [BALSAM, SERIAL],
    "job_status_routing_key": "status.username",
}


def understood(value: object) -> balsam.ReadMessage | errors.BadMessage:
    try:
        return balsam.read_message(
            value if isinstance(value, bytes) else json.dumps(value).encode(), "here"
        )
    except errors.BadMessage as error:
        return error


def job(value: object) -> Job:
    found = understood(value)
    assert isinstance(found, balsam.ReadMessage)
    assert isinstance(found.message, Job)
    return found.message


def refused(value: object) -> errors.BadMessage:
    found = understood(value)
    assert isinstance(found, errors.BadMessage)
    return found


def test_the_definition_on_the_slide_is_a_job():
    assert job(SLIDE) == Job(
        site="site_name", application="unique_application_name", name="jobname",
        description="a job to run", argo_job_id=1507945011064986, queue="batch_queue_name",
        project="batch_project_to_charge", wall_time=1800, nodes=128, tasks=64,
        config_file="file_to_config_app.cfg", speech="balsam",
        inputs=(Input(url="protocol://server.name.gov/path/to/input/files/"),),
        outputs=(Output(url="protocol://server.name.gov/path/to/place/output/files/"),),
    )  # fmt: skip
    found = balsam.read_message(SLIDE)
    assert len(found.notes) == 1
    assert "scheduler_config" in found.notes[0]


def test_what_the_original_sends_beside_it_is_taken():
    assert job(SERIAL) == msgspec.structs.replace(job(SLIDE), job_id=1507945011064987)
    older = {name: value for name, value in BALSAM.items() if name != "argo_job_id"}
    assert job(older | {"origin_id": 5}).argo_job_id == 5


def test_little_is_enough_and_nothing_may_be_null():
    assert job({"application": "sim"}) == Job(site="here", application="sim", speech="balsam")
    empty = dict.fromkeys(BALSAM) | {"application": "sim", "num_nodes": 0}
    assert job(empty) == Job(site="here", application="sim", speech="balsam")


@pytest.mark.parametrize(
    "change, field",
    [
        ({"state": "STAGED_OUT"}, "state"),
        ({"state": "JOB_FINISHED"}, "state"),
        ({"state": 0}, "state"),
        ({"scheduler_id": 12}, "scheduler_id"),
        ({"scheduler_id": True}, "scheduler_id"),
        ({"scheduler_id": "12"}, "scheduler_id"),
        ({"working_directory": "/home/other"}, "working_directory"),
        ({"num_nodes": -1}, "num_nodes"),
        ({"num_nodes": 10**9}, "num_nodes"),
        ({"num_nodes": "128"}, "num_nodes"),
        ({"processes_per_node": 1.5}, "processes_per_node"),
        ({"wall_time_minutes": 10**9}, "wall_time_minutes"),
        ({"application": "sim; rm -rf"}, "application"),
        ({"application": None}, "application"),
        ({"config_file": "../../etc/passwd"}, "config_file"),
        ({"config_file": "/etc/passwd"}, "config_file"),
        ({"input_url": "/data/in"}, "input_url"),
        ({"input_url": ["x"]}, "input_url"),
        ({"scheduler_config": "--wrap='x"}, "scheduler_config"),
        ({"time_created": {}}, "time_created"),
        ({"executable": "/bin/sh"}, "executable"),
        ({"username": "root"}, "username"),
    ],
)
def test_a_refusal_names_the_field_as_the_sender_does(change: dict[str, Any], field: str):
    error = refused(SERIAL | change)
    assert error.field == field
    assert field in str(error)


def test_folders_come_by_the_kinds_of_transfer_there_were():
    assert job(BALSAM | {"input_url": "local:///data/in"}).inputs[0].url == "file:///data/in/"
    assert job(BALSAM | {"input_url": "GSIFTP://h/d/"}).inputs[0].url == "gsiftp://h/d/"
    assert job(BALSAM | {"input_url": "https://h/d?x=1"}).inputs[0].url == "https://h/d?x=1"


def test_options_of_the_batch_system_are_options():
    found = balsam.read_message(
        json.dumps(BALSAM | {"scheduler_config": "--exclusive --constraint='a b'"}).encode()
    )
    assert isinstance(found.message, Job)
    assert found.message.options == ("--exclusive", "--constraint=a b")
    assert found.notes == ()


def test_a_config_of_several_lines_is_the_config_itself():
    found = job(BALSAM | {"config_file": "a = 1\nb = 2"})
    assert (found.config, found.config_file) == ("a = 1\nb = 2", "")


def test_argos_definition_is_a_chain():
    found = understood(ARGO)
    assert isinstance(found, balsam.ReadMessage)
    chain = found.message
    assert isinstance(chain, Chain)
    assert chain.jobs == (job(BALSAM), job(SERIAL))
    assert (chain.reply, chain.speech, chain.email) == (
        "status.username", "argo", "username@place.com",
    )  # fmt: skip
    assert chain.inputs == (Input(url="protocol://server.name.gov/path/to/input/files/"),)
    assert [note[:10] for note in found.notes] == ["subjobs[0]", "subjobs[1]"]


@pytest.mark.parametrize(
    "change, field",
    [
        ({"subjobs": []}, "subjobs"),
        ({"subjobs": {}}, "subjobs"),
        ({"subjobs": [1]}, "subjobs[0]"),
        ({"subjobs": [BALSAM, BALSAM | {"state": "QUEUED"}]}, "subjobs[1].state"),
        ({"subjobs": [BALSAM | {"num_nodes": -5}]}, "subjobs[0].num_nodes"),
        ({"job_status_routing_key": "a b"}, "job_status_routing_key"),
        ({"email": "x@y,z@w"}, "email"),
        ({"state": "HISTORY"}, "state"),
        ({"subjob_pk_list": "[1]"}, "subjob_pk_list"),
    ],
)
def test_a_refusal_in_a_chain_names_the_job(change: dict[str, Any], field: str):
    error = refused(ARGO | change)
    assert error.field == field


def test_ours_are_understood_too():
    found = balsam.read_message(b'{"v": 1, "kind": "control", "site": "x", "verb": "drain"}')
    assert found == balsam.ReadMessage(Control(site="x", verb="drain"))


def test_subjobs_without_numbers_are_not_one_job():
    one, two = job(BALSAM), job(BALSAM | {"num_nodes": 1})
    assert wire.message_key(one, "argo").digits != wire.message_key(two, "argo").digits
    assert wire.message_key(job(SERIAL), "argo").origin == "argo"


@pytest.mark.parametrize("name", [*BALSAM, "state", "working_directory", "scheduler_id"])
def test_no_field_of_the_original_lets_a_text_become_something_else(name: str):
    for value in injection.VALUES:
        found = understood(SERIAL | {name: value})
        if isinstance(found, errors.BadMessage):
            assert name in str(found)
            continue
        assert isinstance(found.message, Job)
        told = balsam.serialized(found.message, status(), 0.0)
        assert name not in {"state", "working_directory", "scheduler_id", "application", "site"}
        if name in ("name", "description", "config_file"):
            assert told[name] == value
        plain = BALSAM | {name: ""}
        usual = {one: got for one, got in told.items() if one not in (name, "state", "site")}
        assert usual.items() <= balsam.serialized(job(SERIAL | plain), status(), 0.0).items()


# -- what is said back ---------------------------------------------------------------------------


def status(state: Any = "running", step: Any = "", **more: Any) -> Status:
    return Status(site="mira", job=3, seq=1, state=state, step=step, time=0.0, **more)


@pytest.mark.parametrize(
    "state, step, expected",
    [
        ("queued", "", "CREATED"),
        ("staging_in", "stage_in", "CREATED"),
        ("ready", "preprocess", "STAGED_IN"),
        ("ready", "submit", "PREPROCESSED"),
        ("held", "submit", "PREPROCESSED"),
        ("submitted", "submit", "SUBMITTED"),
        ("submitted", "queue", "QUEUED"),
        ("running", "run", "RUNNING"),
        ("staging_out", "postprocess", "EXECUTION_FINISHED"),
        ("staging_out", "stage_out", "POSTPROCESSED"),
        ("done", "", "JOB_FINISHED"),
        ("failed", "stage_in", "STAGE_IN_FAILED"),
        ("failed", "preprocess", "PREPROCESS_FAILED"),
        ("failed", "submit", "SUBMIT_FAILED"),
        ("failed", "run", "JOB_FAILED"),
        ("failed", "postprocess", "POSTPROCESS_FAILED"),
        ("failed", "stage_out", "STAGE_OUT_FAILED"),
        ("cancelled", "run", "JOB_FAILED"),
        ("rejected", "accept", "JOB_REJECTED"),
    ],
)
def test_states_in_the_words_of_balsam(state: str, step: str, expected: str):
    assert balsam.balsam_state(status(state, step)) == expected


def test_every_state_has_a_name_and_only_a_good_end_is_finished():
    for state, step in itertools.product(get_args(fields.State), get_args(fields.Step)):
        for kind in ("", "application"):
            found = balsam.balsam_state(status(state, step, reason=Reason(kind=kind)))
            assert found in balsam.ARGO
            assert (found == "JOB_FINISHED") == (state == "done")
            ended = found.startswith("JOB_") or (
                found.endswith("_FAILED") and found != "EXECUTION_FAILED"
            )
            assert ended == (state in ("done", "failed", "cancelled", "rejected"))


def test_a_failed_run_that_is_still_brought_home_is_no_success():
    found = status("staging_out", "postprocess", reason=Reason(kind="application"))
    assert balsam.balsam_state(found) == "EXECUTION_FAILED"
    assert balsam.argo_state(found) == "SUBJOB_RUN_FAILED"


def test_a_status_as_balsam_sends_it():
    one = job(SERIAL)
    said = status(
        "submitted", "queue", scheduler_id="77.pbs01", job_id=one.job_id,
        reason=Reason(text="is in the queue"),
    )  # fmt: skip
    found = json.loads(balsam.balsam_status(one, said, 1507945011.0))
    assert list(found) == ["job_id", "serialized_job", "message"]
    assert (found["job_id"], found["message"]) == (1507945011064987, "is in the queue")
    inner = json.loads(found["serialized_job"])
    assert inner["state"] == "QUEUED"
    assert inner["scheduler_id"] == 77
    assert inner["working_directory"] == ""
    assert inner["time_created"] == "2017-10-14 01:36:51 +0000"
    same = set(BALSAM) - {"site", "scheduler_config", "input_url", "output_url"}
    assert {name: inner[name] for name in same} == {name: BALSAM[name] for name in same}


def test_a_status_as_argo_sends_it():
    said = status("cancelled", "run", argo_job_id=9, reason=Reason(text="by alice"))
    assert json.loads(balsam.argo_status(said)) == {
        "state": "SUBJOB_COMPLETE_FAILED", "job_id": 9, "message": "was cancelled: by alice",
    }  # fmt: skip


#: All that the original's Argo can be in.
CHAIN_STATES = {
    "CREATED", "STAGED_IN", "SUBJOB_SUBMITTED", "SUBJOB_COMPLETED", "SUBJOB_INCREMENTED",
    "SUBJOBS_COMPLETED", "STAGED_OUT", "HISTORY", "CREATE_FAILED", "STAGE_IN_FAILED",
    "SUBJOB_SUBMIT_FAILED", "SUBJOB_IN_PREPROCESS", "SUBJOB_PREPROCESS_FAILED", "SUBJOB_QUEUED",
    "SUBJOB_RUNNING", "SUBJOB_RUN_FINISHED", "SUBJOB_RUN_FAILED", "SUBJOB_IN_POSTPROCESS",
    "SUBJOB_POSTPROCESS_FAILED", "SUBJOB_COMPLETE_FAILED", "SUBJOB_REJECTED",
    "SUBJOB_INCREMENT_FAILED", "STAGE_OUT_FAILED", "FAILED", "REJECTED",
}  # fmt: skip


def test_every_state_of_argo_is_one_it_has():
    assert set(balsam.ARGO.values()) <= CHAIN_STATES
    for state, step in itertools.product(get_args(fields.State), get_args(fields.Step)):
        found = balsam.chain_state(status(state, step))
        assert found in CHAIN_STATES
        assert (found == "HISTORY") == (state == "done")
        said = json.loads(balsam.argo_status(status(state, step), whole=True))
        assert said["state"] == found


@given(st.dictionaries(st.sampled_from([*SERIAL, "subjobs", "x"]), PLAIN))
def test_anything_is_understood_or_refused_with_a_sentence(change: Any):
    for base in (SERIAL, ARGO):
        found = understood(base | change)
        assert isinstance(found, balsam.ReadMessage) or str(found)


def test_who_leaves_the_kind_out_of_our_own_form_is_told():
    with pytest.raises(errors.BadMessage) as caught:
        balsam.read_message(b'{"site": "mira", "application": "sim", "parameters": {}}')
    assert '"kind": "job"' in caught.value.hint
