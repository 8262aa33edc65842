"""The TCP door with real sockets: senders of every kind, polite and not."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio import to_thread
from anyio.abc import SocketStream
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.event import socket as door

HOST = "127.0.0.1"
MOST = 100_000


class Inbox:
    """Keeps what it accepts, or fails as told."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, bytes, str]] = []
        self.error: errors.PilotageError | None = None
        self.arrived = anyio.Event()
        self.gate = anyio.Event()
        self.gate.set()

    async def accept(self, topic: str, body: bytes, identity: str) -> int:
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.taken.append((topic, body, identity))
        self.arrived.set()
        return len(self.taken)

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body, _ in self.taken]


@asynccontextmanager
async def served(inbox: Inbox, token: str = "") -> AsyncIterator[int]:
    async with anyio.create_task_group() as group:
        yield await group.start(door.serve, inbox.accept, "scan.done", 0, token, MOST)
        group.cancel_scope.cancel()


async def say(port: int, sent: bytes) -> bytes:
    with anyio.fail_after(30):
        async with await anyio.connect_tcp(HOST, port) as stream:
            try:
                await stream.send(sent)
                await stream.send_eof()
            except (anyio.BrokenResourceError, OSError):
                pass
            return b"".join([chunk async for chunk in stream])


async def test_a_connection_is_a_message():
    inbox = Inbox()
    async with served(inbox) as port:
        assert await say(port, b"hello\nworld") == b"ok 1\n"
        assert await say(port, b"\x00" * MOST) == b"ok 2\n"
    assert inbox.bodies == [b"hello\nworld", b"\x00" * MOST]
    assert inbox.taken[0][0] == "scan.done"
    assert inbox.taken[0][2] != inbox.taken[1][2]
    with pytest.raises(OSError):  # noqa: PT011 - whichever
        await anyio.connect_tcp(HOST, port)


async def test_the_answer_waits_for_the_disk():
    inbox = Inbox()
    inbox.gate = anyio.Event()
    async with served(inbox) as port, await anyio.connect_tcp(HOST, port) as stream:
        await stream.send(b"x")
        await stream.send_eof()
        with anyio.move_on_after(0.1) as patience:
            await stream.receive()
        assert patience.cancelled_caught
        inbox.gate.set()
        assert await stream.receive() == b"ok 1\n"


async def test_the_token_comes_first():
    inbox = Inbox()
    async with served(inbox, "s3cret") as port:
        assert await say(port, b"TOKEN s3cret\nhello") == b"ok 1\n"
        assert await say(port, b"TOKEN s3cret\r\n\nhello") == b"ok 2\n"
        assert await say(port, b"TOKEN s3cret\n") == b"ok 3\n"
        for wrong in (
            b"", b"hello", b"TOKEN \n", b"TOKEN s3cret", b"TOKEN s3cretX\nhello", b"TOKEN s3cre\n",
            b"token s3cret\n", b"\xff" * 5_000_000, b"\nTOKEN s3cret\n",
        ):  # fmt: skip
            assert (await say(port, wrong)).startswith(b"error E500 the token is missing or wrong")
    assert inbox.bodies == [b"hello", b"\nhello", b""]


async def test_too_much_is_refused_and_the_sender_hears_it():
    inbox = Inbox()
    async with served(inbox) as port:
        for size in (MOST + 1, 5_000_000):
            assert (await say(port, b"x" * size)).startswith(b"error E501 ")
        assert await say(port, b"x") == b"ok 1\n"
    assert inbox.bodies == [b"x"]


async def test_a_sender_that_never_stops_is_stopped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(door, "_LINGER", 0.1)
    async with served(Inbox()) as port, await anyio.connect_tcp(HOST, port) as stream:
        with anyio.fail_after(30), pytest.raises((anyio.BrokenResourceError, OSError)):
            await send_for_ever(stream)


async def send_for_ever(stream: SocketStream) -> None:
    while True:
        await stream.send(b"x" * 10_000)


async def test_a_connection_without_a_byte_is_no_message():
    inbox = Inbox()
    async with served(inbox) as port:
        assert await say(port, b"") == b"error E200 there was no message\n"
    assert inbox.taken == []


async def test_what_goes_wrong_behind_the_door_is_told():
    inbox = Inbox()
    inbox.error = errors.StoreUnavailable("the disk is\nfull \udc80", hint="make room")
    async with served(inbox) as port:
        assert await say(port, b"x") == b"error E601 the disk is\\nfull \\x80; make room\n"


async def test_senders_that_do_not_wait_for_the_answer():
    inbox = Inbox()

    def send() -> None:
        for number in range(20):
            with socket.create_connection((HOST, port)) as sender:
                sender.sendall(b"%d" % number)

    async with served(inbox) as port:
        await to_thread.run_sync(send)
        with anyio.fail_after(30):
            while len(inbox.taken) < 20:
                await inbox.arrived.wait()
                inbox.arrived = anyio.Event()
        assert await say(port, b"end") == b"ok 21\n"
    assert set(inbox.bodies) == {b"%d" % number for number in range(20)} | {b"end"}


async def test_a_connection_that_breaks_is_no_message():
    inbox = Inbox()

    def reset() -> None:
        sender = socket.create_connection((HOST, port))
        sender.sendall(b"half of")
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sender.close()

    async with served(inbox) as port:
        await to_thread.run_sync(reset)
        assert await say(port, b"whole") == b"ok 1\n"
    assert inbox.bodies == [b"whole"]


async def test_a_silent_sender_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(door, "IDLE", 0.05)
    inbox = Inbox()
    for token in ("", "s3cret"):
        async with served(inbox, token) as port, await anyio.connect_tcp(HOST, port) as stream:
            await stream.send(b"x")
            with anyio.fail_after(30):
                assert (await stream.receive()).startswith(b"error E800 nothing came for 0.05 s")
    assert inbox.taken == []


async def test_more_connections_than_are_read_at_once_lose_nothing(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(door, "CONNECTIONS", 3)
    inbox = Inbox()
    inbox.gate = anyio.Event()
    answers: list[bytes] = []
    async with served(inbox) as port, anyio.create_task_group() as group:

        async def one(number: int) -> None:
            answers.append(await say(port, b"%d" % number))

        for number in range(30):
            group.start_soon(one, number)
        await anyio.sleep(0.1)
        assert answers == []
        inbox.gate.set()
    assert sorted(answers) == sorted(b"ok %d\n" % number for number in range(1, 31))


async def test_only_this_machine_is_listened_to():
    async with served(Inbox()) as port:
        # The port is still free on another address of this machine.
        door.bind("127.0.0.2", port).close()


async def test_a_port_in_use_is_named():
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(errors.Conflict, match=f"port {port} of {HOST} is in use"):
            await door.serve(Inbox().accept, "a", port, "", MOST)


async def test_a_bad_topic_is_named():
    with pytest.raises(errors.UsageError):
        await door.serve(Inbox().accept, "a b", 0, "", MOST)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(token=st.sampled_from(["", "s3cret", "é\n"]), sent=st.binary(max_size=200))
async def test_any_bytes_have_an_answer(token: str, sent: bytes, anyio_backend: str):
    inbox = Inbox()
    async with served(inbox, token) as port:
        for body in (sent, b"TOKEN " + token.encode() + b"\n" + sent):
            before = len(inbox.taken)
            found = await say(port, body)
            if len(inbox.taken) > before:
                assert found == b"ok %d\n" % len(inbox.taken)
            else:
                assert found.startswith((b"error E200 ", b"error E500 "))
            assert found.endswith(b"\n")
            assert found.count(b"\n") == 1
