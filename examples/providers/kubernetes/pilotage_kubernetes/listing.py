"""Jobs and pods of a cluster as items: where each is, and why those ended that are over."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from pilotage.batch.system import words
from pilotage.batch.system.model import BatchError, BatchItem, EndCause, Phase

from .manifest import CANCELLED, KEY, name
from .objects import Condition, Job, Meta, Pod, State, Waits

#: A container that will not start by itself any more, or not soon.
_STUCK = frozenset({
    "ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ErrInspectImage",
    "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff",
})  # fmt: skip
#: Why a pod was ended from outside, by its reason or by that of its condition `DisruptionTarget`.
_ENDED = {
    "Evicted": EndCause.PREEMPTED,
    "Preempting": EndCause.PREEMPTED,
    "PreemptionByScheduler": EndCause.PREEMPTED,
    "PreemptionByKubeScheduler": EndCause.PREEMPTED,
    "EvictionByEvictionAPI": EndCause.PREEMPTED,
    "TerminationByKubelet": EndCause.NODE,
    "DeletionByTaintManager": EndCause.NODE,
    "DeletionByPodGC": EndCause.NODE,
    "NodeLost": EndCause.NODE,
    "NodeShutdown": EndCause.NODE,
    "Shutdown": EndCause.NODE,
    "Terminated": EndCause.NODE,
    "NodeAffinity": EndCause.NODE,
    "UnexpectedAdmissionError": EndCause.NODE,
}
#: The container could not be started at all.
_UNSTARTED = frozenset({"ContainerCannotRun", "StartError", "ContainerStatusUnknown"})
_SIGNALS = 64


class _Kind(msgspec.Struct):
    kind: str


class _List(msgspec.Struct):
    kind: str
    items: list[msgspec.Raw]


def items(text: str) -> list[BatchItem]:
    """Read `kubectl get jobs,pods -o json`; being JSON, it is whole or none."""
    try:
        found = msgspec.json.decode(text, type=_List)
        if not found.kind.endswith("List"):
            raise BatchError(f"kubectl get: this is no list but {found.kind!r}")
        jobs: list[Job] = []
        pods: dict[str, Pod] = {}
        for raw in found.items:
            match msgspec.json.decode(raw, type=_Kind).kind:
                case "Job":
                    jobs.append(msgspec.json.decode(raw, type=Job))
                case "Pod":
                    _newest(pods, msgspec.json.decode(raw, type=Pod))
                case _:
                    pass
        return [_item(job, pods.get(_key(job.metadata))) for job in jobs if _ours(job)]
    except (msgspec.DecodeError, UnicodeError, ValueError) as error:
        raise BatchError(f"kubectl get: {error}") from None


def _key(meta: Meta) -> str:
    return meta.labels.get(KEY, "")


def _ours(job: Job) -> bool:
    key = _key(job.metadata)
    return words.is_key(key) and job.metadata.name == name(key)


def _newest(pods: dict[str, Pod], pod: Pod) -> None:
    key = _key(pod.metadata)
    old = pods.get(key)
    if old is None or old.metadata.creation_timestamp <= pod.metadata.creation_timestamp:
        pods[key] = pod


def _item(job: Job, pod: Pod | None) -> BatchItem:
    told: dict[str, Any] = {"key": _key(job.metadata), "id": job.metadata.name}
    if pod is not None:
        told |= {"node": pod.spec.node_name, "started": _started(pod.state)}
    if done := job.condition("Complete"):
        ended = _time(job.status.completion_time)
        return BatchItem(
            **told, phase=Phase.OVER, cause=EndCause.EXITED, exit=0, ended=ended, words=done.reason
        )  # fmt: skip
    if failed := job.condition("Failed"):
        return BatchItem(**told, phase=Phase.OVER, **_why(job, failed, pod))
    if job.spec.suspend:
        if CANCELLED in job.metadata.annotations:
            return BatchItem(**told, phase=Phase.OVER, cause=EndCause.CANCELLED, words="suspended")
        return BatchItem(**told, phase=Phase.HELD, words="suspended")
    phase, said = _phase(pod)
    return BatchItem(**told, phase=phase, words=said)


def _phase(pod: Pod | None) -> tuple[Phase, str]:
    """Say where a job is that is not over."""
    if pod is None:
        return Phase.QUEUED, "there is no pod yet"
    match pod.status.phase:
        case "Pending":
            waits = pod.state.waiting or Waits()
            if waits.reason in _STUCK:
                return Phase.HELD, _said(waits.reason, waits.message)
            lacking = [one for one in pod.status.conditions if one.status == "False"]
            said = [_said(one.reason, one.message) for one in lacking if one.message]
            return Phase.QUEUED, waits.reason or (said[0] if said else "Pending")
        case "Running" | "Succeeded" | "Failed":
            # One that ended is being cleared away until its job says so.
            return Phase.RUNNING, pod.status.phase
        case other:
            return Phase.UNKNOWN, _said(other, pod.status.reason)


def _why(job: Job, failed: Condition, pod: Pod | None) -> dict[str, Any]:
    """Say why a job failed: its own deadline first, then what became of its pod."""
    said = _said(failed.reason, failed.message)
    ended = _time(pod.state.terminated.finished_at) if pod and pod.state.terminated else None
    if failed.reason == "DeadlineExceeded":
        off = CANCELLED in job.metadata.annotations
        return {
            "cause": EndCause.CANCELLED if off else EndCause.TIMEOUT,
            "words": said,
            "ended": ended,
        }
    if pod is None:
        return {"cause": EndCause.UNKNOWN, "words": said}
    return {**_end(pod), "ended": ended}


def _end(pod: Pod) -> dict[str, Any]:
    over = pod.state.terminated
    if over is not None and over.reason == "OOMKilled":
        return {"cause": EndCause.MEMORY, "words": over.reason}
    status = pod.status
    lost = [one for one in status.conditions if one.type == "DisruptionTarget"]
    for reason, message in (
        (status.reason, status.message),
        *((c.reason, c.message) for c in lost),
    ):
        if cause := _ENDED.get(reason):
            return {"cause": cause, "words": _said(reason, message)}
    if over is None:
        return {
            "cause": EndCause.UNKNOWN,
            "words": _said(status.reason or "Failed", status.message),
        }
    if over.reason in _UNSTARTED:
        return {"cause": EndCause.NODE, "words": over.reason}
    # A shell says 128 and the number of the signal, and so does what runs containers.
    number = over.signal or over.exit_code - 128
    if 0 < number <= _SIGNALS:
        return {"cause": EndCause.SIGNALLED, "signal": number, "words": over.reason}
    return {"cause": EndCause.EXITED, "exit": over.exit_code, "words": over.reason}


def _said(reason: str, message: str) -> str:
    return f"{reason}: {' '.join(message.split())}"[:500] if message else reason


def _started(state: State) -> float | None:
    told = state.running or state.terminated
    return _time(told.started_at) if told else None


def _time(text: str | None) -> float | None:
    return datetime.fromisoformat(text).timestamp() if text else None
