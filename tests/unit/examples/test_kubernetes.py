"""The worked example of a provider, without a cluster: manifests, and what clusters say of jobs.

Listings have the shape of what `kubectl` 1.32 wrote; reasons are those that Kubernetes documents.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from examples.providers.kubernetes.pilotage_kubernetes import Kubernetes
from pilotage.base import errors
from pilotage.batch.system import known
from pilotage.batch.system.model import (
    BatchError,
    BatchItem,
    BatchSystem,
    EndCause,
    Output,
    Phase,
)
from pilotage.testing.batch.words import KEY, ORDER, Sample, Words

SETTINGS: dict[str, Any] = {"image": "python:3.11", "mount": "/site"}
BEGAN, ENDED = "2026-11-16T07:00:00Z", "2026-11-16T07:10:00Z"
LABELS = {"app.kubernetes.io/managed-by": "pilotage", "pilotage/key": KEY}
DEADLINE = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}
FAILED = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
COMPLETE = {"type": "Complete", "status": "True"}


def job(*conditions: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": KEY, "labels": LABELS, "uid": "0-1", "creationTimestamp": BEGAN},
        "spec": {"backoffLimit": 0, **spec},
        "status": {"conditions": list(conditions), "startTime": BEGAN, "completionTime": ENDED},
    }  # fmt: skip


def called_off(one: dict[str, Any]) -> dict[str, Any]:
    one["metadata"]["annotations"] = {"pilotage/cancelled": "true"}
    return one


def pod(phase: str, state: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    containers = [{"name": "pilot", "ready": False, "state": state}] if state else []
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": f"{KEY}-x7", "labels": LABELS, "creationTimestamp": BEGAN},
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": phase, "containerStatuses": containers, **status},
    }  # fmt: skip


def over(code: int, reason: str = "Error", **more: Any) -> dict[str, Any]:
    told = {"exitCode": code, "reason": reason, "startedAt": BEGAN, "finishedAt": ENDED}
    return {"terminated": {**told, **more}}


def said(*objects: dict[str, Any]) -> Output:
    return Output(0, json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))


RUNS = pod("Running", {"running": {"startedAt": BEGAN}})
ITEM = BatchItem(key=KEY, id=KEY, phase=Phase.OVER, node="n1", started=1794812400.0)


class TestWords(Words):
    listings = (
        Sample(said(), ()),
        Sample(
            said(job(), RUNS), [replace(ITEM, phase=Phase.RUNNING, words="Running")]
        ),
        Sample(
            said(job(COMPLETE), pod("Succeeded", over(0, "Completed"))),
            [replace(ITEM, cause=EndCause.EXITED, exit=0, ended=ITEM.started + 600)],  # type: ignore[operator]
        ),
    )  # fmt: skip
    answers = (
        (Output(0, f"job.batch/{KEY}\n"), KEY),
        (
            Output(1, "", f'Error from server (AlreadyExists): jobs.batch "{KEY}" already exists'),
            KEY,
        ),
    )
    refusals = (
        (
            Output(1, "", 'Error from server (Forbidden): jobs.batch is forbidden: User "x"'),
            True,
        ),
        (
            Output(1, "", "Error from server (Forbidden): exceeded quota: small, used: cpu=4"),
            False,
        ),
        (Output(1, "", 'Error from server (NotFound): namespaces "nope" not found'), True),
        (Output(1, "", "Unable to connect to the server: dial tcp: i/o timeout"), False),
    )
    mapping = ((dict[str, Any](), ("create", "--filename=-")),)

    @pytest.fixture
    def batch(self) -> BatchSystem:
        return Kubernetes(SETTINGS)


def test_resources_become_a_manifest():
    order = replace(
        ORDER, cpus=2, tasks=3, memory=1 << 30, gpus=1, time=90.5, queue="short", qos="high",
        constraint="zone=a,example.org/disk=ssd",
    )  # fmt: skip
    batch = Kubernetes({**SETTINGS, "claim": "shared", "namespace": "lab", "user": 1000})
    call = batch.submit(order)
    assert call.argv[:2] == ("kubectl", "--namespace=lab")
    made = json.loads(call.input)
    assert made["metadata"]["name"] == KEY
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "short"
    assert (made["spec"]["backoffLimit"], made["spec"]["activeDeadlineSeconds"]) == (0, 91)
    inner = made["spec"]["template"]["spec"]
    assert inner["restartPolicy"] == "Never"
    assert inner["automountServiceAccountToken"] is False
    assert inner["nodeSelector"] == {"zone": "a", "example.org/disk": "ssd"}
    assert inner["priorityClassName"] == "high"
    assert inner["volumes"][0]["persistentVolumeClaim"] == {"claimName": "shared"}
    assert inner["securityContext"] == {"runAsUser": 1000}
    (container,) = inner["containers"]
    assert container["resources"]["limits"] == {
        "cpu": "6", "memory": str(1 << 30), "nvidia.com/gpu": "1",
    }  # fmt: skip
    assert container["command"][-1] == ORDER.folder


@pytest.mark.parametrize(
    "changes", [{"nodes": 2}, {"account": "x"}, {"reservation": "x"}, {"extra": ("--x",)},
                {"step": True}, {"count": 2}, {"constraint": "no label"}],
)  # fmt: skip
def test_what_it_cannot_do_is_refused(changes: dict[str, Any]):
    with pytest.raises(BatchError) as caught:
        Kubernetes(SETTINGS).submit(replace(ORDER, **changes))
    assert caught.value.final


@pytest.mark.parametrize(
    "objects, phase, words",
    [
        ((job(),), Phase.QUEUED, "no pod yet"),
        (
            (
                job(),
                pod("Pending", conditions=[
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                     "message": "0/3 nodes are available: 3 Insufficient cpu."}]),
            ),
            Phase.QUEUED, "Unschedulable: 0/3 nodes",
        ),
        (
            (job(), pod("Pending", {"waiting": {"reason": "ContainerCreating"}})),
            Phase.QUEUED, "ContainerCreating",
        ),
        (
            (job(), pod("Pending", {"waiting": {"reason": "ImagePullBackOff", "message": "no"}})),
            Phase.HELD, "ImagePullBackOff: no",
        ),
        ((job(suspend=True),), Phase.HELD, "suspended"),
        ((called_off(job(suspend=True)),), Phase.OVER, "suspended"),
        ((job(), pod("Failed", over(1))), Phase.RUNNING, "Failed"),
        ((job(), pod("Unknown", reason="NodeLost")), Phase.UNKNOWN, "NodeLost"),
        ((job(), pod("Strange")), Phase.UNKNOWN, "Strange"),
    ],
)  # fmt: skip
def test_where_a_job_is(objects: tuple[dict[str, Any], ...], phase: Phase, words: str):
    (item,) = Kubernetes(SETTINGS).listed(said(*objects))
    assert item.phase is phase
    assert words in item.words


@pytest.mark.parametrize(
    "objects, cause, code",
    [
        ((job(FAILED), pod("Failed", over(7))), EndCause.EXITED, 7),
        ((job(FAILED), pod("Failed", over(137))), EndCause.SIGNALLED, 9),
        ((job(FAILED), pod("Failed", over(255))), EndCause.EXITED, 255),
        ((job(FAILED), pod("Failed", over(137, "OOMKilled"))), EndCause.MEMORY, None),
        ((job(FAILED), pod("Failed", over(128, "StartError"))), EndCause.NODE, None),
        ((job(FAILED), pod("Failed", reason="Evicted", message="disk")), EndCause.PREEMPTED, None),
        ((job(FAILED), pod("Failed", over(143), reason="NodeShutdown")), EndCause.NODE, None),
        (
            (
                job(FAILED),
                pod("Failed", over(143), conditions=[
                    {"type": "DisruptionTarget", "status": "True",
                     "reason": "PreemptionByScheduler"}]),
            ),
            EndCause.PREEMPTED, None,
        ),
        ((job(DEADLINE), RUNS), EndCause.TIMEOUT, None),
        ((called_off(job(DEADLINE)), RUNS), EndCause.CANCELLED, None),
        ((called_off(job(COMPLETE)), pod("Succeeded", over(0))), EndCause.EXITED, 0),
        ((job(FAILED),), EndCause.UNKNOWN, None),
        ((job(FAILED), pod("Failed")), EndCause.UNKNOWN, None),
    ],
)  # fmt: skip
def test_why_a_job_is_over(objects: tuple[dict[str, Any], ...], cause: EndCause, code: int | None):
    (item,) = Kubernetes(SETTINGS).listed(said(*objects))
    assert (item.phase, item.cause) == (Phase.OVER, cause)
    assert (item.signal if cause is EndCause.SIGNALLED else item.exit) == code


def test_jobs_of_others_are_left_out():
    other = job()
    other["metadata"] = {"name": "stranger", "labels": {"pilotage/key": KEY}}
    nobody = job()
    nobody["metadata"] = {"name": "nobody"}
    assert Kubernetes(SETTINGS).listed(said(other, nobody, {"kind": "Service"})) == []


@pytest.mark.parametrize(
    "settings",
    [{}, {"image": "x"}, {**SETTINGS, "mount": "here"}, {**SETTINGS, "namespace": "--all"},
     {**SETTINGS, "imgae": "x"}, {**SETTINGS, "user": "root"}],
)  # fmt: skip
def test_settings_are_closed(settings: dict[str, Any]):
    name = "examples.providers.kubernetes.pilotage_kubernetes:Kubernetes"
    with pytest.raises(errors.ConfigError, match="does not take its settings"):
        known.adapter(name, program=(), folder="", settings=settings)
