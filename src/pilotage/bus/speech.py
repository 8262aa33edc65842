"""What we say of a job in the words of Balsam and Argo (2017): states and status messages."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

from pilotage.bus.fields import State, Step
from pilotage.bus.model import Job, Status

#: The states of Balsam, in order, and what each is for Argo.
ARGO = {
    "CREATED": "SUBJOB_IN_PREPROCESS",
    "CREATE_FAILED": "SUBJOB_PREPROCESS_FAILED",
    "STAGED_IN": "SUBJOB_IN_PREPROCESS",
    "STAGE_IN_FAILED": "SUBJOB_PREPROCESS_FAILED",
    "PREPROCESSED": "SUBJOB_IN_PREPROCESS",
    "PREPROCESS_FAILED": "SUBJOB_PREPROCESS_FAILED",
    "SUBMITTED": "SUBJOB_IN_PREPROCESS",
    "SUBMIT_FAILED": "SUBJOB_PREPROCESS_FAILED",
    "SUBMIT_DISABLED": "SUBJOB_COMPLETED",
    "QUEUED": "SUBJOB_QUEUED",
    "RUNNING": "SUBJOB_RUNNING",
    "EXECUTION_FINISHED": "SUBJOB_RUN_FINISHED",
    "EXECUTION_FAILED": "SUBJOB_RUN_FAILED",
    "POSTPROCESSED": "SUBJOB_IN_POSTPROCESS",
    "POSTPROCESS_FAILED": "SUBJOB_POSTPROCESS_FAILED",
    "STAGED_OUT": "SUBJOB_IN_POSTPROCESS",
    "STAGE_OUT_FAILED": "SUBJOB_POSTPROCESS_FAILED",
    "JOB_FINISHED": "SUBJOB_COMPLETED",
    "JOB_FAILED": "SUBJOB_COMPLETE_FAILED",
    "JOB_REJECTED": "SUBJOB_REJECTED",
}

#: How far a job that does not run has come, by what is to be done next.
_REACHED: dict[Step, str] = {"preprocess": "STAGED_IN", "submit": "PREPROCESSED"}
_FAILED: dict[Step, str] = {
    "accept": "CREATE_FAILED",
    "stage_in": "STAGE_IN_FAILED",
    "preprocess": "PREPROCESS_FAILED",
    "submit": "SUBMIT_FAILED",
    "postprocess": "POSTPROCESS_FAILED",
    "stage_out": "STAGE_OUT_FAILED",
}
_PLAIN: dict[State, str] = {
    "running": "RUNNING",
    "done": "JOB_FINISHED",
    "rejected": "JOB_REJECTED",
    # The original knows no way to call a job off; the message says it.
    "cancelled": "JOB_FAILED",
}
#: What Argo calls the states of a chain while none of its jobs is at a site, and at its end.
_WHOLE: dict[State, str] = {
    "waiting": "CREATED",
    "queued": "CREATED",
    "held": "CREATED",
    "staging_in": "CREATED",
    "ready": "STAGED_IN",
    "submitted": "SUBJOB_SUBMITTED",
    "running": "SUBJOB_RUNNING",
    "staging_out": "SUBJOBS_COMPLETED",
    "done": "HISTORY",
    "failed": "FAILED",
    "cancelled": "FAILED",
    "rejected": "REJECTED",
}
_WHOLE_FAILED: dict[Step, str] = {
    "accept": "CREATE_FAILED",
    "stage_in": "STAGE_IN_FAILED",
    "submit": "SUBJOB_SUBMIT_FAILED",
    "stage_out": "STAGE_OUT_FAILED",
}
_DIGITS = re.compile(r"\d{1,18}", re.ASCII)


def balsam_state(status: Status) -> str:
    """Say where a job is as Balsam does."""
    if status.state in _PLAIN:
        return _PLAIN[status.state]
    match status.state:
        case "failed":
            return _FAILED.get(status.step, "JOB_FAILED")
        case "submitted":
            return "QUEUED" if status.step == "queue" else "SUBMITTED"
        case "staging_out" if status.step == "stage_out":
            return "POSTPROCESSED"
        case "staging_out":
            bad = status.reason.kind in ("application", "infrastructure")
            return "EXECUTION_FAILED" if bad else "EXECUTION_FINISHED"
        case "ready" if status.step != "submit":
            return "STAGED_IN"
        case _:
            return _REACHED.get(status.step, "CREATED")


def argo_state(status: Status) -> str:
    """Say where a job of a chain is as Argo does."""
    return ARGO[balsam_state(status)]


def chain_state(status: Status) -> str:
    """Say where a chain as a whole is as Argo does."""
    if status.state == "failed" and status.step in _WHOLE_FAILED:
        return _WHOLE_FAILED[status.step]
    return _WHOLE[status.state]


def balsam_status(job: Job, status: Status, created: float) -> bytes:
    """Write `BalsamJobStatus`: the number, the whole job as text, and a sentence."""
    number = status.job_id or status.job
    said = {
        "job_id": number, "serialized_job": json.dumps(serialized(job, status, created)),
        "message": _message(status),
    }  # fmt: skip
    return json.dumps(said).encode()


def argo_status(status: Status, *, whole: bool = False) -> bytes:
    """Write `ArgoJobStatus`, of a job or of the `whole` chain: state, number, and a sentence."""
    number = status.argo_job_id or status.job_id or status.job
    state = chain_state(status) if whole else argo_state(status)
    said = {"state": state, "job_id": number, "message": _message(status)}
    return json.dumps(said).encode()


def serialized(job: Job, status: Status, created: float) -> dict[str, str | int]:
    """Write a job with the fields that Balsam sends; its folder is nobody else's business."""
    digits = _DIGITS.match(status.scheduler_id)
    return {
        "job_id": status.job_id or status.job,
        "site": status.site,
        "name": job.name,
        "description": job.description,
        "argo_job_id": job.argo_job_id,
        "queue": job.queue,
        "project": job.project,
        "wall_time_minutes": -(-job.wall_time // 60),
        "num_nodes": job.nodes,
        "processes_per_node": job.tasks,
        "scheduler_config": " ".join(job.options),
        "scheduler_id": int(digits[0]) if digits else 0,
        "application": job.application,
        "config_file": job.config or job.config_file,
        "state": balsam_state(status),
        "working_directory": "",
        "input_url": job.inputs[0].url if job.inputs else "",
        "output_url": job.outputs[0].url if job.outputs else "",
        "time_created": _time(created),
        "time_modified": _time(status.time),
    }


def _message(status: Status) -> str:
    word = "was cancelled" if status.state == "cancelled" else ""
    return ": ".join(part for part in (word, status.reason.text) if part)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S %z")
