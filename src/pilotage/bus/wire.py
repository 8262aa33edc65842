"""Encoding and decoding of message bodies; an error names the faulty field."""

from __future__ import annotations

import contextlib
import itertools
import re
from typing import Any, TypeVar

import msgspec

from pilotage.base import errors
from pilotage.bus import strict
from pilotage.bus.model import (
    VERSION,
    Answer,
    Chain,
    Control,
    Course,
    Flow,
    Follow,
    Heartbeat,
    Job,
    Log,
    Message,
    Refusal,
    Status,
)

_T = TypeVar("_T")

#: What a message may not set, and whose it is.
FORBIDDEN = {
    "state": "the state of a job is the site's to say",
    "scheduler_id": "the number at the batch system is the site's to say",
    "working_directory": "the folder of a job is the site's to choose",
    "user": "the certificate of the sender names the owner",
    "owner": "the certificate of the sender names the owner",
}
_KINDS: dict[str, type[Message]] = {
    "job": Job, "chain": Chain, "flow": Flow, "course": Course, "control": Control,
    "follow": Follow, "status": Status, "log": Log, "heartbeat": Heartbeat, "answer": Answer,
    "refusal": Refusal,
}  # fmt: skip
#: Verbs that are about jobs, and would be about all of them if none is named.
_OF_JOBS = ("cancel", "hold", "release", "retry", "resend")

_AT = re.compile(r" - at (?:`key` in )?`\$\.?(.*)`$", re.DOTALL)
_SOME = re.compile(r" - at (?:`\$\.(?=\w+\[\.\.\.\])|`key` in `\$\.)(\w+)(?:\[\.\.\.\])?`$")
#: Members of a table that are checked to find the faulty one.
_MOST_TRIED = 300
_NAMED = re.compile("(unknown|missing required) field `(.*)`", re.DOTALL)
_REGEX = re.compile(r"Expected `str` matching regex .*", re.DOTALL)


def decode(body: bytes) -> Message:
    """Read a message of ours."""
    return read(strict.load(body))


def read(found: dict[str, Any]) -> Message:
    """Read a message of ours that has been taken apart already."""
    version = found.get("v")
    if version != VERSION or isinstance(version, bool):
        told = ascii(version)[:20]
        message = f"the field `v` is {told}: this version understands {VERSION}"
        raise errors.BadMessage(message, field="v")
    kind = _KINDS.get(found["kind"]) if isinstance(found.get("kind"), str) else None
    if kind is None:
        message = f"the field `kind` is none of {', '.join(_KINDS)}"
        raise errors.BadMessage(message, field="kind")
    made = convert(found, kind)
    if isinstance(made, Control):
        _check(made)
    return made


def encode(message: Message) -> bytes:
    """Write a message of ours."""
    return msgspec.json.encode(message)


def check(body: bytes, kind: type[Message]) -> None:
    """Raise `BadMessage` if a receiver would refuse an encoded message."""
    if strict.plain(body):
        with contextlib.suppress(msgspec.ValidationError):
            msgspec.json.decode(body, type=kind)
            return
    decode(body)


def convert(found: dict[str, Any], kind: type[_T]) -> _T:
    """Convert plain values to a struct, or raise `BadMessage` that names the faulty field."""
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        said = str(error)
    raise _refusal(_located(said, found, kind))


def _located(said: str, found: dict[str, Any], kind: type[_T]) -> str:
    """Name the member of a table that is wrong; the checker says only that one is."""
    place = _SOME.search(said)
    table = found.get(place[1]) if place else None
    if not place or not isinstance(table, dict):
        return said
    for name, value in itertools.islice(table.items(), _MOST_TRIED):
        try:
            msgspec.convert({**found, place[1]: {name: value}}, kind)
        except msgspec.ValidationError:
            return f"{said[: place.start()]} - at `$.{place[1]}.{name}`"
    return said


def _check(control: Control) -> None:
    named = bool(control.jobs or control.keys)
    if control.verb in _OF_JOBS and not named:
        message = f"the field `jobs` is empty, and so is `keys`: name the jobs to {control.verb}"
        raise errors.BadMessage(message, field="jobs")
    if control.verb in ("drain", "resume") and named:
        field = "jobs" if control.jobs else "keys"
        message = f"the field `{field}` has no meaning with {control.verb}, which is of the site"
        raise errors.BadMessage(message, field=field)


def _refusal(said: str) -> errors.BadMessage:
    """Return an error with a sentence for users."""
    place = _AT.search(said)
    what = said[: place.start()] if place else said
    path = place[1] if place else ""
    if named := _NAMED.search(what):
        field = f"{path}.{named[2]}" if path else named[2]
        if named[1] != "unknown":
            return errors.BadMessage(f"the field {strict.shown(field)} is missing", field=field)
        message = f"there is no field {strict.shown(field)} in such a message"
        hint = FORBIDDEN.get(named[2], "the page on messages lists all fields")
        return errors.BadMessage(message, hint=hint, field=field)
    if _REGEX.fullmatch(what):
        what = "its characters or its length are not allowed"
    message = f"the field {strict.shown(path or '…')} is invalid: {what}"
    return errors.BadMessage(message, hint="the page on messages lists all fields", field=path)
