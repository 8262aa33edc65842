"""The byte stream over files: whole, in order, and ended when one side ends."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pilotage.node import spool

_SIDES = st.lists(st.tuples(st.booleans(), st.binary(max_size=200)), max_size=40)


def _pair(root: str) -> tuple[spool.SpoolStream, spool.SpoolStream]:
    pilot = spool.SpoolStream.create(root)
    (relay,) = spool.waiting(root)
    return pilot, relay


@given(_SIDES, st.lists(st.booleans(), max_size=60))
def test_any_bytes_in_any_chunks_arrive_whole_and_in_order(
    said: list[tuple[bool, bytes]], reads: list[bool]
) -> None:
    with tempfile.TemporaryDirectory() as root:
        pilot, relay = _pair(root)
        got = {True: b"", False: b""}
        when = iter(reads)
        for up, data in said:
            (pilot if up else relay).write(data)
            if next(when, False):
                got[up] += (relay if up else pilot).read() or b""
        for up, side in ((True, relay), (False, pilot)):
            while chunk := side.read():
                got[up] += chunk
        for up in (True, False):
            assert got[up] == b"".join(data for side, data in said if side is up)


@given(st.binary(min_size=1, max_size=500), st.data())
def test_a_writer_killed_in_the_middle_of_a_chunk_shows_no_half_of_it(
    data: bytes, draw: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as root:
        pilot, relay = _pair(root)
        pilot.write(data)
        half = draw.draw(st.binary(max_size=100))
        Path(pilot.folder, "up", "000001.part").write_bytes(half)
        assert relay.read() == data
        assert relay.read() == b""
        # Whoever comes back writes the same chunk again.
        pilot.write(half)
        assert (relay.read() or b"") == half


def test_what_was_written_before_the_end_is_read_before_the_end(tmp_path):
    pilot, relay = _pair(str(tmp_path))
    pilot.write(b"last words")
    pilot.close()
    assert relay.read() == b"last words"
    assert relay.read() is None
    relay.close()
    assert list(tmp_path.iterdir()) == []


def test_large_data_is_cut_into_chunks(tmp_path):
    pilot, relay = _pair(str(tmp_path))
    data = os.urandom(spool.CHUNK + 17)
    pilot.write(data)
    assert [len(relay.read() or b""), len(relay.read() or b"")] == [spool.CHUNK, 17]


def test_a_stream_is_taken_once(tmp_path):
    spool.SpoolStream.create(str(tmp_path))
    assert len(spool.waiting(str(tmp_path))) == 1
    assert spool.waiting(str(tmp_path)) == []


def test_a_new_relay_ends_what_the_old_one_had_taken(tmp_path):
    pilot, _ = _pair(str(tmp_path))
    fresh = spool.SpoolStream.create(str(tmp_path))
    assert spool.close_abandoned(str(tmp_path)) == 1
    assert pilot.read() is None
    assert fresh.read() == b""


def test_too_many_unread_chunks_stop_the_writer(tmp_path):
    pilot, relay = _pair(str(tmp_path))
    for _ in range(spool.MOST_WAITING):
        assert not pilot.crowded
        pilot.write(b"x")
    assert pilot.crowded
    relay.read()
    assert not pilot.crowded


def test_a_pump_makes_a_socket_of_each_side(tmp_path):
    ours = spool.connect(str(tmp_path))
    (stream,) = spool.waiting(str(tmp_path))
    relay, inner = socket.socketpair()
    pump = spool.Pump(stream, inner)
    pump.start()
    with ours, relay:
        for side in (ours, relay):
            side.settimeout(10)
        ours.sendall(b"up" * 1000)
        got = b""
        while len(got) < 2000:
            got += relay.recv(4096)
        assert got == b"up" * 1000
        relay.sendall(b"down")
        assert ours.recv(100) == b"down"
        relay.close()
        assert ours.recv(1) == b""
    pump.join(10)
    assert not pump.is_alive()
