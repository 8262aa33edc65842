"""The published schemas are those of the code, and say what the code does."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs._ext import schemas
from pilotage.base import errors
from pilotage.bus import wire
from tests.unit.bus import test_messages as messages


def validator(kind: str) -> Any:
    return jsonschema_rs.validator_for(json.loads(schemas.text(kind)))


VALIDATORS = {kind: validator(kind) for kind in schemas.KINDS}


@pytest.mark.parametrize("kind", schemas.KINDS)
def test_the_file_is_what_the_code_says(kind: str):
    file = schemas.FOLDER / f"{kind}.json"
    assert file.read_text("utf-8") == schemas.text(kind), "run `python -m docs._ext.schemas`"


def test_there_is_no_other_file():
    assert {file.stem for file in schemas.FOLDER.iterdir()} == set(schemas.KINDS)


@pytest.mark.parametrize("kind", schemas.KINDS)
def test_every_field_is_described_and_no_other_is_taken(kind: str):
    found = json.loads(schemas.text(kind))
    for part in (found, *found.get("$defs", {}).values()):
        assert part["additionalProperties"] is False
        for name, field in part["properties"].items():
            assert field.get("description") or name == "kind"


@pytest.mark.parametrize("kind", messages.ALL)
def test_what_we_send_is_valid(kind: str):
    assert VALIDATORS[kind].is_valid(messages.ALL[kind])
    assert not VALIDATORS[kind].is_valid(messages.ALL[kind] | {"more": 1})
    assert not VALIDATORS[kind].is_valid(messages.ALL[kind] | {"v": 2})


@given(st.dictionaries(st.sampled_from([*messages.FULL]), messages.PLAIN, max_size=2))
def test_what_is_taken_is_valid(change: Any):
    sent = messages.FULL | change
    try:
        wire.decode(json.dumps(sent).encode())
    except errors.BadMessage:
        return
    assert VALIDATORS["job"].is_valid(sent)
