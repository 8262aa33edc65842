"""Frames: any object, cut anywhere, comes out as it went in; anything else is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.node import frame

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(), _VALUES, max_size=4), max_size=5), st.data())
def test_objects_survive_any_cuts(objects, data):
    stream = b"".join(frame.pack(frame.text(one)) for one in objects)
    reader = frame.Reader()
    found = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:size])
        stream = stream[size:]
    assert found == objects


def test_half_a_character_does_not_break_a_frame():
    (found,) = frame.Reader().feed(frame.pack(frame.text({"name": "a\udc80b"})))
    assert found == {"name": "a?b"}


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff", b"\0\0\0\2[]", b"\0\0\0\1{", b"\0\0\0\2\xff\xff"]
)
def test_what_is_no_frame_is_refused(data):
    with pytest.raises(frame.FrameError):
        frame.Reader().feed(data)


def test_a_frame_too_long_is_not_sent():
    with pytest.raises(frame.FrameError):
        frame.pack("x" * (frame.LIMIT + 1))
