"""An order as the manifest of a Kubernetes job."""

from __future__ import annotations

import math
import re
from typing import Any

from pilotage.batch.system import words
from pilotage.batch.system.model import BatchError, BatchOrder

from .settings import Settings

OWNER = ("app.kubernetes.io/managed-by", "pilotage")
KEY = "pilotage/key"
#: Set when somebody called it off.
CANCELLED = "pilotage/cancelled"
_QUEUE = "kueue.x-k8s.io/queue-name"
#: What a job that is over is kept for, in seconds, so that its end is seen.
_KEPT_S = 86400
#: The same for every order; what differs are its arguments.
_RUN = 'cd "$1" && exec >>out.0 2>&1 </dev/null && exec /bin/sh ./script.sh'
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PREFIXED = re.compile(
    r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
)
_LACKS = {
    "account": "accounts",
    "nodes": "jobs over several nodes",
    "reservation": "reservations",
    "extra": "options",
    "step": "steps",
}


def manifest(order: BatchOrder, settings: Settings) -> dict[str, Any]:
    """Write a job that is run once: nothing starts it again, and nothing else has its name."""
    words.refuse(order, "Kubernetes", **_LACKS)
    labels = {OWNER[0]: OWNER[1], KEY: order.key}
    queue = {_QUEUE: _label("queue", order.queue)} if order.queue else {}
    spec: dict[str, Any] = {
        "backoffLimit": 0,
        "completions": 1,
        "parallelism": 1,
        "ttlSecondsAfterFinished": _KEPT_S,
        "template": {"metadata": {"labels": labels}, "spec": _pod(order, settings)},
    }
    if order.time is not None:
        spec["activeDeadlineSeconds"] = max(1, math.ceil(order.time))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name(order.key), "labels": {**labels, **queue}},
        "spec": spec,
    }


def name(key: str) -> str:
    """Return the name of an order's job; a second one of that name is refused by the cluster."""
    return key.lower()


def _pod(order: BatchOrder, settings: Settings) -> dict[str, Any]:
    volume: dict[str, Any] = {"name": "site"}
    if settings.claim:
        volume["persistentVolumeClaim"] = {"claimName": settings.claim}
    else:
        volume["hostPath"] = {"path": settings.mount, "type": "Directory"}
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        # A payload has no business with the cluster.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [_container(order, settings)],
        "volumes": [volume],
    }
    if settings.service_account:
        pod["serviceAccountName"] = settings.service_account
    who = {"runAsUser": settings.user, "runAsGroup": settings.group}
    if who := {key: value for key, value in who.items() if value >= 0}:
        pod["securityContext"] = who
    if order.qos:
        pod["priorityClassName"] = _label("qos", order.qos)
    if order.constraint:
        pod["nodeSelector"] = _selector(order.constraint)
    return pod


def _container(order: BatchOrder, settings: Settings) -> dict[str, Any]:
    amounts: dict[str, str] = {"cpu": str(order.tasks * order.cpus)}
    if order.memory is not None:
        amounts["memory"] = str(order.memory)
    if order.gpus:
        amounts["nvidia.com/gpu"] = str(order.gpus)
    return {
        "name": "pilot",
        "image": settings.image,
        "command": ["/bin/sh", "-c", _RUN, "sh", order.folder],
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": [{"name": "site", "mountPath": settings.mount}],
    }


def _label(field: str, value: str) -> str:
    if not _LABEL.fullmatch(value):
        raise BatchError(f"{field}: {value!r} is no name in Kubernetes", final=True)
    return value


def _selector(constraint: str) -> dict[str, str]:
    """Read `label=value,label=value`."""
    found = {}
    for one in constraint.split(","):
        key, _, value = one.partition("=")
        if not _PREFIXED.fullmatch(key) or not _LABEL.fullmatch(value):
            raise BatchError(f"constraint: {one!r} is no label and value", final=True)
        found[key] = value
    return found
