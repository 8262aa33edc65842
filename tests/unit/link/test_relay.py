"""The relay: what goes in comes out, ends are passed on, and it holds no more than it may."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from pilotage.base import errors
from pilotage.link import connect
from pilotage.link.relay import Relay, RelayBounds
from pilotage.node import spool

_Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def _between(
    serve: _Serve,
    bounds: RelayBounds = RelayBounds(),  # noqa: B008
) -> AsyncIterator[tuple[Relay, int]]:
    """A hub that does as told, and a relay to it."""
    talks: set[asyncio.Task[object]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.add(asyncio.current_task())  # type: ignore[arg-type]
        await serve(reader, writer)

    hub = await asyncio.start_server(talk, "127.0.0.1", 0)
    way = connect.route(f"http://127.0.0.1:{hub.sockets[0].getsockname()[1]}", proxy="none")
    relay = Relay(way, bounds)
    server = await relay.listen("127.0.0.1", 0)
    try:
        yield relay, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await relay.end()
        hub.close()
        await asyncio.gather(*talks, return_exceptions=True)


async def test_what_goes_in_comes_out_both_ways():
    async with _between(_echo) as (relay, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        data = os.urandom(5 << 20)
        sending = asyncio.create_task(_send(writer, data))
        assert await reader.readexactly(len(data)) == data
        await sending
        assert relay.tally.up == relay.tally.down == len(data)
        writer.close()


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def test_the_end_of_one_side_is_passed_on_at_once_and_what_is_left_arrives():
    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b"all of it"
        writer.write(b"an answer after the end")
        writer.close()

    async with _between(late) as (relay, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"all of it")
        writer.write_eof()
        assert await reader.read() == b"an answer after the end"
        writer.close()
        await _until(lambda: relay.tally.open == 0)


async def test_a_side_that_never_ends_is_cut_soon_after_the_other(monkeypatch):
    monkeypatch.setattr("pilotage.link.relay._LINGER_S", 0.1)
    cut = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        try:
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.02)
        except OSError:
            cut.set()

    async with _between(deaf) as (relay, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await asyncio.wait_for(cut.wait(), 10)
        await _until(lambda: relay.tally.open == 0)


async def test_a_reader_that_is_slow_slows_the_sender_and_not_the_relay():
    go = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        while await reader.read(1 << 20):
            pass
        writer.close()

    async with _between(slow) as (relay, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(bytes(64 << 20))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.drain(), 0.5)
        # Far less than was sent is held between the two.
        assert relay.tally.up < 16 << 20
        go.set()
        await asyncio.wait_for(writer.drain(), 30)
        writer.close()


async def test_more_connections_than_allowed_are_refused_and_room_is_given_back():
    async with _between(_echo, RelayBounds(connections=2)) as (relay, port):
        links = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await _until(lambda: relay.tally.open == 2)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
        assert relay.tally.refused == 1
        links[0][1].close()
        await _until(lambda: relay.tally.open == 1)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        for one in (writer, links[1][1]):
            one.close()


async def test_a_connection_on_which_nothing_is_said_is_ended():
    async with _between(_echo, RelayBounds(idle=0.3)) as (relay, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(5):
            writer.write(b"alive")
            assert await reader.readexactly(5) == b"alive"
            await asyncio.sleep(0.1)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        assert relay.tally.open == 0
        writer.close()


async def test_a_hub_that_is_away_costs_only_the_connections_of_that_time(caplog):
    way = connect.route("http://127.0.0.1:9", proxy="none")
    relay = Relay(way)
    server = await relay.listen("127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for _ in range(3):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
    # Told once, not for each pilot that tries.
    assert len([one for one in caplog.records if "cannot reach" in one.message]) == 1
    hub = await asyncio.start_server(_echo, "127.0.0.1", 0)
    relay._way = connect.route(f"http://127.0.0.1:{hub.sockets[0].getsockname()[1]}", proxy="none")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"again")
    assert await reader.readexactly(5) == b"again"
    writer.close()
    server.close()
    await relay.end()
    hub.close()


# -- files ---------------------------------------------------------------------------------------


@asynccontextmanager
async def _watching(relay: Relay, folder: str) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(relay.watch, folder)
        yield
        tasks.cancel_scope.cancel()


async def test_streams_of_files_reach_the_hub_and_leave_nothing_behind(tmp_path):
    folder = str(tmp_path / "spool")
    data = os.urandom(3 << 20)
    async with _between(_echo) as (relay, _), _watching(relay, folder):
        link = await asyncio.to_thread(spool.connect, folder)
        got = await asyncio.to_thread(_exchange, link, data)
        assert got == data
        link.close()
        await _until(lambda: relay.tally.open == 0)
        await _until(lambda: [one.name for one in (tmp_path / "spool").iterdir()] == ["relay.lock"])


def _exchange(link, data: bytes) -> bytes:
    sender = threading.Thread(target=link.sendall, args=(data,))
    sender.start()
    found = b""
    while len(found) < len(data):
        found += link.recv(1 << 20)
    sender.join()
    return found


async def test_a_pilot_whose_node_died_does_not_hold_its_stream_for_ever(tmp_path):
    folder = tmp_path / "spool"
    folder.mkdir()
    spool.SpoolStream.create(str(folder))
    async with _between(_echo, RelayBounds(idle=0.3)) as (relay, _), _watching(relay, str(folder)):
        await _until(lambda: relay.tally.served == 1 and relay.tally.open == 0)
        (one,) = (each for each in folder.iterdir() if each.is_dir())
        await _until((one / "closed").exists)
        os.utime(one / "closed", (1, 1))
    async with _between(_echo) as (relay, _), _watching(relay, str(folder)):
        await _until(lambda: not one.exists())


async def test_a_relay_ends_the_streams_of_the_one_before_it(tmp_path):
    folder = tmp_path / "spool"
    folder.mkdir()
    theirs = spool.SpoolStream.create(str(folder))
    spool.waiting(str(folder))
    async with _between(_echo) as (relay, _), _watching(relay, str(folder)):
        await _until(lambda: theirs.closed)


async def test_only_one_relay_serves_a_folder_and_not_one_that_all_may_write(tmp_path):
    folder = tmp_path / "spool"
    async with _between(_echo) as (relay, _):
        async with _watching(relay, str(folder)):
            await _until((folder / "relay.lock").exists)
            with pytest.raises(errors.AlreadyRunning):
                await relay.watch(str(folder))
        folder.chmod(0o777)
        with pytest.raises(errors.ConfigError, match="all users"):
            await relay.watch(str(folder))


async def _until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
