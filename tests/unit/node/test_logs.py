"""What the hub gets of a file that grows: all of it, or its head and its tail."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pilotage.node import jobs


def _all(tail: jobs.Tail, count: int) -> bytes:
    got = b""
    while tail.look() and (data := tail.take(count)):
        got += data
    return got


@given(
    st.lists(st.binary(max_size=60), max_size=8),
    st.integers(0, 200),
    st.integers(1, 50),
    st.data(),
)
def test_head_and_tail_are_kept_and_cuts_change_nothing(pieces, limit, count, data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "stdout")
        path.touch()
        tail = jobs.Tail(str(path), limit)
        got = b""
        for piece in pieces:
            with path.open("ab") as file:
                file.write(piece)
            got = got[: tail.sent] + _all(tail, count)
            if data.draw(st.booleans()):
                tail.safe = data.draw(st.integers(tail.safe, tail.sent))
                tail.rewind()
        tail.finish()
        got = got[: tail.sent] + _all(tail, count) + tail.rest()
    whole = b"".join(pieces)
    if len(whole) <= limit:
        assert got == whole
    else:
        kept = len(whole) - (limit - limit // 2)
        note = f"\n[... {len(whole) - limit} bytes are left out here ...]\n".encode()
        assert got == whole[: limit // 2] + note + whole[kept:]


def test_what_is_no_plain_file_is_not_read(tmp_path):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "missing"):
        tail = jobs.Tail(str(tmp_path / name), 100)
        assert not tail.look()
        tail.finish()
        assert tail.rest() == b""


def test_what_was_sent_and_perhaps_lost_does_not_go_with_the_end_as_well(tmp_path):
    path = tmp_path / "stdout"
    path.write_bytes(b"first")
    tail = jobs.Tail(str(path), 100)
    assert _all(tail, 50) == b"first"
    tail.rewind()
    path.write_bytes(b"first, second")
    tail.finish()
    assert (_all(tail, 50), tail.rest()) == (b"first", b", second")
