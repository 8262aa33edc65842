"""Messages: topics, fields, and bodies that survive."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors, text
from pilotage.event import message
from pilotage.event.model import Event, EventKind


@pytest.mark.parametrize("topic", ["a", "beam.shutter.open", "A_b-9.0", "x" * 200])
def test_topics(topic: str):
    message.check_topic(topic)


@pytest.mark.parametrize(
    "topic",
    ["", ".", "a.", ".a", "a..b", "a b", "a/b", "a.*", "é", "a\n", "٣", "x" * 201, "\udc80"],
)
def test_what_is_no_topic_is_named(topic: str):
    with pytest.raises(errors.UsageError) as caught:
        message.check_topic(topic)
    assert caught.value.hint


@given(st.text(max_size=20))
def test_any_text_is_a_topic_or_a_usage_error(topic: str):
    try:
        message.check_topic(topic)
    except errors.UsageError:
        return
    assert topic.isascii()
    assert all(topic.split("."))


def test_the_event_of_a_message(tmp_path: Path):
    body = b'{"sample": "Al", "run": 7}'
    assert message.event("scan.done", body, tmp_path, 12.0, "id") == Event(
        EventKind.MESSAGE,
        "scan.done",
        12.0,
        "id",
        size=len(body),
        other=str(tmp_path),
        data={"sample": "Al", "run": 7},
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[1]",
        b"3",
        b'"text"',
        b"{",
        b'{"a": \xff}',
        b'{"a": "\xff"}',
        b'{"a": 1e999}',
        b'{"a": NaN}',
        b'{"a": "\\ud800"}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": ' + b"[" * 65 + b"]" * 65 + b"}",
        b'{"a": ' + b"[" * 30_000 + b"]" * 30_000 + b"}",
        b'{"a":' * 100 + b"1" + b"}" * 100,
        b'{"a": "' + b"x" * 64_000 + b'"}',
        "é".encode("utf-16"),
    ],
)
def test_other_bodies_have_no_fields(body: bytes):
    assert message.fields(body) == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=5), JSON))
def test_fields_come_through_the_store(fields: dict[str, object]):
    found = message.fields(json.dumps(fields).encode())
    assert found == fields
    assert text.load(text.dump(found)) == fields


@given(st.binary(max_size=40) | st.text('{}[]":,0123456789eE+-.\\u ', max_size=40).map(str.encode))
def test_any_body_has_fields_or_none_that_come_through_the_store(body: bytes):
    found = message.fields(body)
    assert text.load(text.dump(found)) == found


def test_a_body_is_kept(tmp_path: Path):
    path = message.spool(tmp_path, b"hello", "a-1.json")
    assert path == tmp_path / "a-1.json"
    assert path.read_bytes() == b"hello"
    assert list(tmp_path.iterdir()) == [path]


def test_the_first_of_a_name_stays(tmp_path: Path):
    assert message.spool(tmp_path, b"1", "a") == message.spool(tmp_path, b"2", "a")
    assert (tmp_path / "a").read_bytes() == b"1"


@given(name=st.text(max_size=300) | st.sampled_from(["..", "../x", "/x", ".", "", "a/b", "\0"]))
def test_no_name_leaves_the_folder(name: str, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("spool")
    path = message.spool(folder, b"x", name)
    assert path.parent == folder
    assert os.listdir(folder) == [path.name]  # noqa: PTH208 - names
    assert not path.name.startswith(".")


def test_different_names_are_different_files(tmp_path: Path):
    odd = message.spool(tmp_path, b"1", "a/b")
    assert message.spool(tmp_path, b"2", odd.name) != odd


def test_what_cannot_be_kept_is_named(tmp_path: Path):
    with pytest.raises(errors.StoreUnavailable, match="No such file or directory"):
        message.spool(tmp_path / "none", b"", "a")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(errors.StoreUnavailable):
        message.spool(tmp_path / "file", b"", "a")


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(errors.StoreUnavailable, match="No space left"):
        message.spool(tmp_path, b"x", "a")
    assert list(tmp_path.iterdir()) == []
