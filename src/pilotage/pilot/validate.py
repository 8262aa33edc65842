"""Validate and bound values received from pilots."""

from __future__ import annotations

import re
from typing import Any

from pilotage.base import errors, text
from pilotage.pilot import messages, model
from pilotage.run.model import Ending, EndReason, Usage

_KEY = re.compile(r"[0-9a-f]{64}")
_ATTEMPT = re.compile(r"([1-9][0-9]{0,14})\.([1-9][0-9]{0,8})", re.ASCII)
#: The largest node that we believe in: cores, memory, disk, GPUs.
_MOST = (100_000, 1 << 50, 1 << 60, 1000)
#: Bytes of what a node may say of itself.
_MOST_FACTS = 1 << 16
_MOST_HOST = 255
#: Ends and starts in one message.
_MOST_NEWS = 50_000
_LAST_PID = 1 << 31
_FAR = 2**53
#: Characters of what is said of an end.
_MOST_WORDS = 2000


def check_version(protocol: int) -> None:
    """Refuse a pilot of another version."""
    if protocol != model.PROTOCOL:
        message = f"the pilot speaks version {protocol} of the link, this hub {model.PROTOCOL}"
        raise errors.UsageError(message, hint="take the pilot that this hub serves")


def check_hello(hello: messages.Hello) -> None:
    """Refuse implausible values in a pilot's description of its node."""
    check_version(hello.protocol)
    if not _KEY.fullmatch(hello.key):
        raise errors.UsageError("the key of a pilot is 64 hexadecimal digits")
    facts = hello.facts
    sizes = (facts.cpus, facts.memory, facts.disk, len(facts.gpus))
    if facts.cpus < 1 or not all(0 <= one <= most for one, most in zip(sizes, _MOST, strict=True)):
        raise errors.UsageError(
            "these sizes of a node are not plausible", hint="correct what the pilot reports"
        )
    if not facts.work.startswith("/"):
        raise errors.UsageError("the folder of a pilot is an absolute path")
    if not (facts.host.isprintable() and 0 < len(facts.host) <= _MOST_HOST):
        raise errors.UsageError("this is no name of a host")
    if facts.lifetime is not None and not 0 <= facts.lifetime <= _FAR:
        raise errors.UsageError("this lifetime of a node is not plausible")
    if not all(map(_is_plain, facts.attributes.values())):
        raise errors.UsageError("an attribute is a text, a number, a truth value or a list of them")
    if len(text.dump(facts)) > _MOST_FACTS:
        raise errors.UsageError(f"a node has at most {_MOST_FACTS} bytes to say of itself")


def _is_plain(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    if isinstance(value, list):
        return all(isinstance(one, str | int | float) for one in value)
    return value is None or isinstance(value, str | int | float)


def check_pilot(number: int) -> None:
    """Refuse a number that no pilot can have."""
    if not 0 < number < _FAR:
        raise errors.NotFound(f"there is no pilot {number}", hint="enrol it again")


def check_sync(message: messages.Sync) -> None:
    """Refuse more news than a pilot can have, and processes that cannot be."""
    if len(message.ended) > _MOST_NEWS or len(message.started) > _MOST_NEWS:
        raise errors.UsageError(f"one message has at most {_MOST_NEWS} ends and starts")
    if not all(0 < pid < _LAST_PID for _, pid in message.started):
        raise errors.UsageError("no process has such a number")
    if message.used is not None and not all(0 <= one <= _FAR for one in message.used):
        raise errors.UsageError("this usage of a payload is not plausible")


def attempt(key: str) -> tuple[int, int]:
    """Read the name of an attempt: its job and its number."""
    found = _ATTEMPT.fullmatch(key)
    if found is None:
        raise errors.UsageError(f"{text.show(key)[:100]!r} is no attempt")
    return int(found[1]), int(found[2])


def ending(end: model.ReportedEnd) -> Ending:
    """Return an end that a pilot reports, within what can be; an unknown reason is no evidence."""
    try:
        reason = EndReason(end.reason)
    except ValueError:
        reason = EndReason.LOST
    words = text.show(end.message)[:_MOST_WORDS] if end.message else ""
    usage = None if end.usage is None else _usage(end.usage)
    return Ending(
        end.key, end.time, number(end.exit), number(end.signal), reason, words, usage, end.result
    )


def _usage(used: Usage) -> Usage:
    """Bound the reported usage of a payload."""
    return Usage(
        size(used.wall), size(used.cpu_user), size(used.cpu_system), number(used.max_rss) or 0,
        number(used.read_bytes) or 0, number(used.written_bytes) or 0,
    )  # fmt: skip


def number(value: int | None) -> int | None:
    """Bound a number to what the store can hold."""
    return None if value is None else max(-_FAR, min(value, _FAR))


def size(value: float) -> float:
    """Bound a measured value."""
    return max(0.0, min(value, float(_FAR)))
