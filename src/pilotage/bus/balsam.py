"""Job definitions, states and status messages of Balsam and Argo (2017).

Job definitions that the original programs send are accepted unchanged. Three of their fields would
let a sender skip steps, adopt another user's batch job or choose any folder: `state`,
`scheduler_id` and `working_directory` are accepted only with the values of a new job.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from pilotage.base import errors
from pilotage.bus import wire
from pilotage.bus.fields import State, Step
from pilotage.bus.model import Chain, Job, Message, Status

#: Values of a new job of the original in fields that a message may not set.
_NEW: dict[str, tuple[object, ...]] = {
    "state": ("", "CREATED", None),
    "scheduler_id": (0, "", None),
    "working_directory": ("", None),
}
#: Fields that the original sends with each job, and that are not read.
_UNREAD = frozenset(
    {
        "time_created", "time_modified", "time_start_queued", "time_job_started",
        "time_job_finished", "time_finished",
    }
)  # fmt: skip
_JOB = frozenset(
    {
        "name", "description", "site", "argo_job_id", "origin_id", "job_id", "queue", "project",
        "wall_time_minutes", "num_nodes", "processes_per_node", "scheduler_config", "application",
        "config_file", "input_url", "output_url",
    }
)  # fmt: skip
_CHAIN = frozenset(
    {
        "name", "description", "user_id", "group_identifier", "username", "email", "input_url",
        "output_url", "subjobs", "job_status_routing_key", "job_id",
    }
)  # fmt: skip
#: Names of transfer kinds in the original, and here.
_SCHEMES = {"local": "file"}
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+-]*)://(.*)", re.DOTALL)
#: A bound that our own messages have too.
_MOST_JOBS = 1000


class ReadMessage(msgspec.Struct, frozen=True):
    """A decoded message, whatever its format was."""

    message: Message
    #: Notes on fields that the sender may have meant differently.
    notes: tuple[str, ...] = ()


def read_message(body: bytes, site: str = "") -> ReadMessage:
    """Read a message of ours, of Balsam's or of Argo's; `site` is who reads it."""
    found = wire.load(body)
    if "v" in found or "kind" in found:
        return ReadMessage(wire.read(found))
    return argo(found, site) if "subjobs" in found else balsam(found, site)


def balsam(found: Mapping[str, Any], site: str = "") -> ReadMessage:
    """Read a job definition of Balsam's."""
    _closed(found, _JOB)
    given = _Fields(found)
    options, notes = _options(given.text("scheduler_config"))
    config = given.text("config_file")
    many = "\n" in config
    plain = {
        "site": given.text("site") or site,
        "name": given.text("name"),
        "description": given.text("description"),
        "application": given.text("application"),
        "argo_job_id": given.number("argo_job_id") or given.number("origin_id"),
        "job_id": given.number("job_id"),
        "queue": given.text("queue"),
        "project": given.text("project"),
        "wall_time": given.number("wall_time_minutes") * 60,
        "nodes": given.number("num_nodes") or 1,
        "tasks": given.number("processes_per_node") or 1,
        "config": config if many else "",
        "config_file": "" if many else config,
        "options": options,
        "inputs": _staged(given.text("input_url")),
        "outputs": _staged(given.text("output_url")),
        "speech": "balsam",
    }
    return ReadMessage(_convert(plain, Job), notes)


def argo(found: Mapping[str, Any], site: str = "") -> ReadMessage:
    """Read a job definition of Argo's: jobs of Balsam's, one after the other."""
    _closed(found, _CHAIN)
    given = _Fields(found)
    subjobs = found["subjobs"]
    if not isinstance(subjobs, list) or not 1 <= len(subjobs) <= _MOST_JOBS:
        message = f"the field `subjobs` is no list of 1 to {_MOST_JOBS} jobs"
        raise errors.BadMessage(message, field="subjobs")
    number = given.number("job_id")
    jobs: list[Any] = []
    notes: list[str] = []
    for at, one in enumerate(subjobs):
        place = f"subjobs[{at}]"
        part = _within(place, functools.partial(balsam, site=site), one)
        notes += [f"{place}: {note}" for note in part.notes]
        jobs.append(part.message)
    plain = {
        "key": f"argo:{number}" if number else "",
        "name": given.text("name"),
        "description": given.text("description"),
        "user_id": given.text("user_id"),
        "group": given.text("group_identifier"),
        "username": given.text("username"),
        "email": given.text("email"),
        "inputs": _staged(given.text("input_url")),
        "outputs": _staged(given.text("output_url")),
        "reply": given.text("job_status_routing_key"),
        "speech": "argo",
        "jobs": [msgspec.to_builtins(one) for one in jobs],
    }
    return ReadMessage(_convert(plain, Chain), tuple(notes))


class _Fields:
    """Reads fields of the original, which may be null if they are empty."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self._found = found

    def text(self, name: str) -> str:
        value = self._found.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise _wrong(name, "is not text")
        return value

    def number(self, name: str) -> int:
        value = self._found.get(name)
        if value is None:
            return 0
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
            raise _wrong(name, "is not a whole number of 0 or more")
        return value


def _closed(found: Mapping[str, Any], known: frozenset[str]) -> None:
    for name, value in found.items():
        if name in known:
            continue
        if name in _NEW:
            if value not in _NEW[name] or isinstance(value, bool):
                hint = wire.FORBIDDEN[name]
                message = f"the field `{name}` cannot be set by a message"
                raise errors.BadMessage(message, hint=hint, field=name)
        elif name not in _UNREAD:
            message = f"there is no field {wire.shown(name)} in a job definition"
            hint = wire.FORBIDDEN.get(
                name, 'a job of our own form has `"v": 1` and `"kind": "job"`'
            )
            raise errors.BadMessage(message, hint=hint, field=name)
        elif not isinstance(value, str | int | float | None):
            raise _wrong(name, "is not a time")


def _staged(url: str) -> list[dict[str, str]]:
    """Write a URL of the original, which is always of a whole folder."""
    if not url:
        return []
    found = _URL.fullmatch(url)
    if found:
        scheme = found[1].lower()
        url = f"{_SCHEMES.get(scheme, scheme)}://{found[2]}"
        if "?" not in url and not url.endswith("/"):
            url += "/"
    return [{"url": url}]


def _options(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read options of the batch system; the original also gave the name of a file here."""
    if not text:
        return (), ()
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise _wrong("scheduler_config", f"cannot be split into words: {error}") from None
    if all(word.startswith("--") for word in words):
        return tuple(words), ()
    note = "`scheduler_config` names no options such as `--exclusive`: the site's own settings hold"
    return (), (note,)


#: Our names of fields that the original names differently.
_THEIRS = {
    "nodes": "num_nodes", "tasks": "processes_per_node", "wall_time": "wall_time_minutes",
    "config": "config_file", "options": "scheduler_config", "inputs": "input_url",
    "outputs": "output_url", "group": "group_identifier", "reply": "job_status_routing_key",
    "jobs": "subjobs",
}  # fmt: skip
_HEAD = re.compile(r"\w+")


def _convert(plain: dict[str, Any], kind: type[Job | Chain]) -> Job | Chain:
    """Check the values; a refusal names the field as the sender does."""
    try:
        return wire.convert(plain, kind)
    except errors.BadMessage as error:
        head = _HEAD.match(error.field)
        theirs = _THEIRS.get(head[0]) if head else None
        if theirs is None:
            raise
        message = error.message.replace(wire.shown(error.field), f"`{theirs}`")
        raise errors.BadMessage(message, hint=error.hint, field=theirs) from None


def _within(
    place: str, read: Callable[[Mapping[str, Any]], ReadMessage], value: object
) -> ReadMessage:
    if not isinstance(value, dict):
        raise _wrong(place, "is not a job definition")
    try:
        return read(value)
    except errors.BadMessage as error:
        field = f"{place}.{error.field}"
        raise errors.BadMessage(f"in `{place}`: {error}", hint=error.hint, field=field) from None


def _wrong(name: str, what: str) -> errors.BadMessage:
    return errors.BadMessage(f"the field `{name}` {what}", field=name)


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

#: The state of a job that does not run, by its next step.
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
    # The original cannot cancel a job; the message says it.
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
    """Return the state of a job in Balsam's terms."""
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
    """Return the state of a job of a chain in Argo's terms."""
    return ARGO[balsam_state(status)]


def chain_state(status: Status) -> str:
    """Return the state of a whole chain in Argo's terms."""
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
    """Return a job with the fields that Balsam sends; its folder is not disclosed."""
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
