"""Decode reports of a starter; results of functions stay as they were written."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from pilotage.base import text
from pilotage.run.model import Ending, Report, Started


class _Started(Started, frozen=True, tag_field="op", tag="started"):
    """The line that tells of a start."""


class _Ended(Ending, frozen=True, tag_field="op", tag="ended"):
    """The line that tells of an end."""

    result: msgspec.Raw = msgspec.Raw(b"null")


class _Evidence(Ending, frozen=True):
    """The same in a file."""

    result: msgspec.Raw = msgspec.Raw(b"null")


_lines: msgspec.json.Decoder[Report] = msgspec.json.Decoder(_Started | _Ended)
_files: msgspec.json.Decoder[Ending] = msgspec.json.Decoder(_Evidence)


def read(line: bytes) -> Report:
    """Read a line of a starter."""
    try:
        found = _lines.decode(line)
    except msgspec.DecodeError:
        facts = text.load(line)
        if facts["op"] == "ended":
            return _odd(facts)
        return msgspec.convert(facts, Started)
    return _plain(found) if isinstance(found, Ending) else Started(found.key, found.pid, found.time)


def read_evidence(data: bytes) -> Ending:
    """Read the file that a starter left of an end."""
    try:
        return _plain(_files.decode(data))
    except msgspec.DecodeError:
        return _odd(json.loads(data))


def _plain(found: Ending) -> Ending:
    facts = msgspec.structs.asdict(found)
    if bytes(facts["result"]) == b"null":
        del facts["result"]
    return Ending(**facts)


def _odd(facts: Any) -> Ending:  # noqa: ANN401 - any JSON value
    """Read an end of which some text holds odd bytes."""
    ending = msgspec.convert(facts, Ending)
    if ending.result is None:
        return ending
    return msgspec.structs.replace(ending, result=msgspec.Raw(text.dump(ending.result).encode()))


def result(ending: Ending) -> str:
    """Return what a function returned as JSON, and nothing if nothing is to be kept."""
    found = ending.result
    if isinstance(found, msgspec.Raw):
        return bytes(found).decode()
    return "" if found is None else text.dump(found)
