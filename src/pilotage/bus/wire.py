"""Bodies of messages: encoding, strict decoding, and the key of a job.

An error names the faulty field. Duplicate keys, NaN, infinities, numbers that are too large, lone
surrogates, control characters and deep nesting are refused: other programs read them in different
ways. The key of a job is the sender's own, or the numbers that Argo gave, or the body itself; keys
of different senders never collide, and the same key with another body is a conflict.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import re
from collections import Counter
from typing import Any, Literal, TypeVar

import msgspec

from pilotage.base import errors
from pilotage.bus.model import (
    DEEPEST_BODY,
    MOST_BODY_BYTES,
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

#: Fields that may have several lines, by path.
MANY_LINES = frozenset(
    {
        "config",
        "config_file",
        "description",
        "scheduler_config",
        "reason.text",
        "scheduler.text",
        "text",
    }
)
_WITHIN = re.compile(r"^(?:sub)?jobs\[\d+\]\.")
#: No part backtracks: an attacker must not make us read anything twice.
_PIECE = re.compile(r'"(?:\\.|[^"\\])*+"?|[\[{]|[\]}]|,(?=\s*+[\]}])', re.DOTALL)
#: Control characters, ends of lines and paragraphs, marks that turn the direction of writing
#: around, and halves of characters.
BAD = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_BAD_EVEN_IN_TEXT = re.compile(BAD.pattern.replace("\x00-\x1f", "\x00-\x08\x0b\x0c\x0e-\x1f"))
#: In the source of a message, where JSON itself allows ends of lines between texts.
_BAD_IN_SOURCE = re.compile(BAD.pattern.replace("\x00-\x1f", ""))
_MOST_DIGITS = 32


def load(body: bytes) -> dict[str, Any]:
    """Read the body of a message."""
    if len(body) > MOST_BODY_BYTES:
        message = f"the message has {len(body)} bytes; the limit is {MOST_BODY_BYTES}"
        raise errors.BadMessage(message, hint="send large data as an input by its URL")
    try:
        source = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise errors.BadMessage(f"the message is not UTF-8: byte {error.start}") from None
    found = _parse(source)
    if not isinstance(found, dict):
        raise errors.BadMessage("the message is not a JSON object")
    # Without a backslash every text of the message stands in the source as it is.
    if "\\" in source or _BAD_IN_SOURCE.search(source):
        _walk(found, "")
    return found


def plain(body: bytes) -> bool:
    """Return whether `load` would accept JSON that our own encoder has written.

    If not, only `load` knows.
    """
    source = body.decode("utf-8")
    return (
        len(body) <= MOST_BODY_BYTES
        and source.count("{") + source.count("[") <= DEEPEST_BODY
        and "\\" not in source
        and not _BAD_IN_SOURCE.search(source)
    )


def _parse(source: str) -> Any:  # noqa: ANN401 - any JSON value
    """Read JSON; tidy it first if it may be nested too deeply or cannot be read."""
    if source.count("{") + source.count("[") > DEEPEST_BODY:
        source = _tidy(source)
    try:
        return _DECODER.decode(source)
    except json.JSONDecodeError as error:
        tidy = _tidy(source)
        if tidy == source:
            raise _unreadable(error) from None
    try:
        return _DECODER.decode(tidy)
    except json.JSONDecodeError as error:
        raise _unreadable(error) from None


def _unreadable(error: json.JSONDecodeError) -> errors.BadMessage:
    return errors.BadMessage(f"the message is not JSON: {error.msg} in line {error.lineno}")


def _tidy(source: str) -> str:
    """Refuse deep nesting before anything is built, and drop commas that end a list.

    A widely copied job definition ends with such a comma.
    """
    depth = deepest = at = 0
    kept: list[str] = []
    for piece in _PIECE.finditer(source):
        match piece[0][0]:
            case "{" | "[":
                depth += 1
                deepest = max(deepest, depth)
            case "}" | "]":
                depth -= 1
            case ",":
                kept.append(source[at : piece.start()])
                at = piece.end()
            case _:
                pass  # text
    if deepest > DEEPEST_BODY:
        raise errors.BadMessage(f"the message is nested {deepest} deep, {DEEPEST_BODY} is the most")
    return "".join([*kept, source[at:]]) if kept else source


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise errors.BadMessage(f"the field {shown(twice)} is there twice", field=twice)
    return found


def _constant(word: str) -> Any:  # noqa: ANN401 - it never returns
    raise errors.BadMessage(f"the message holds {word}, which is not a number")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise errors.BadMessage(f"the number {digits[:_MOST_DIGITS]} is too large")
    return value


def _int(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise errors.BadMessage(f"the number {digits[:_MOST_DIGITS]}… is too large")
    return int(digits)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_int
)


def _walk(value: object, path: str) -> None:
    """Look at every text of a message, its keys too."""
    if isinstance(value, str):
        if BAD.search(value):
            _complain(value, path)
    elif isinstance(value, dict):
        for key, inner in value.items():
            below = f"{path}.{key}" if path else key
            if BAD.search(key):
                message = f"the name of the field {shown(below)} is not printable"
                raise errors.BadMessage(message, field=below)
            _walk(inner, below)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            _walk(inner, f"{path}[{number}]")


def _complain(value: str, path: str) -> None:
    many = _WITHIN.sub("", path) in MANY_LINES
    bad = (_BAD_EVEN_IN_TEXT if many else BAD).search(value)
    if bad:
        message = f"the field {shown(path)} holds the character U+{ord(bad[0]):04X}"
        raise errors.BadMessage(message, hint="only printable text is taken", field=path)


def shown(path: str) -> str:
    """Write the path of a field, whatever is in it."""
    return f"`{ascii(path[:200])[1:-1]}`"


# -- messages --------------------------------------------------------------------------------------


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
    return read(load(body))


def read(found: dict[str, Any]) -> Message:
    """Read a message of ours that has been taken apart already."""
    version = found.get("v")
    if version != VERSION or isinstance(version, bool):
        told = ascii(version)[:20]
        message = f"the field `v` is {told}: only version {VERSION} is understood"
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
    if plain(body):
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
            return errors.BadMessage(f"the field {shown(field)} is missing", field=field)
        message = f"there is no field {shown(field)} in such a message"
        hint = FORBIDDEN.get(named[2], "the page on messages lists all fields")
        return errors.BadMessage(message, hint=hint, field=field)
    if _REGEX.fullmatch(what):
        what = "its characters or its length are not allowed"
    message = f"the field {shown(path or '…')} is invalid: {what}"
    return errors.BadMessage(message, hint="the page on messages lists all fields", field=path)


class MessageKey(msgspec.Struct, frozen=True):
    """The identity of a message."""

    #: 32 hexadecimal digits, equal for the same job.
    digits: str
    #: The SHA-256 of the content, equal for the same message.
    body: str
    #: Its source.
    origin: Literal["sender", "argo", "body"]


def message_key(message: Job | Chain | Flow, user: str) -> MessageKey:
    """Return the identity of a message from a user that the bus has verified."""
    body = digest(msgspec.structs.replace(message, key=""))
    origin: Literal["sender", "argo", "body"] = "sender"
    if message.key:
        mine: list[Any] = [message.key]
    elif isinstance(message, Job) and message.job_id:
        origin, mine = "argo", [message.argo_job_id, message.job_id]
    else:
        origin, mine = "body", [body]
    attempt = message.attempt if isinstance(message, Job) else 1
    return MessageKey(
        digest([user, origin, type(message).__name__, attempt, *mine])[:32], body, origin
    )


def digest(value: object) -> str:
    """Return the SHA-256 of a value, however its fields were ordered when they came."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()
