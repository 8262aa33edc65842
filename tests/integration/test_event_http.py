"""Messages by HTTP at the port of the hub, with real sockets."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest
from anyio.abc import SocketStream

from pilotage.base import errors
from pilotage.event import http
from pilotage.hub import port as front

HOST = "127.0.0.1"
TOKEN = "s3cret"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
MOST = 100_000


class Inbox:
    """Keeps what it accepts once the gate is open."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.asked = anyio.Event()
        self.gate = anyio.Event()
        self.gate.set()

    async def accept(self, _topic: str, body: bytes, _identity: str) -> int:
        self.asked.set()
        await self.gate.wait()
        self.taken.append(body)
        return len(self.taken)


@asynccontextmanager
async def served(inbox: Inbox) -> AsyncIterator[int]:
    app = http.app(inbox.accept, TOKEN, MOST)
    with front.listen(HOST, 0, roam=False) as opened:
        async with anyio.create_task_group() as group:
            yield await group.start(front.serve, app, asyncio.Protocol, opened)
            group.cancel_scope.cancel()


def client(port: int) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=f"http://{HOST}:{port}", headers=HEADERS)


async def talk(port: int, sent: bytes) -> bytes:
    async with await anyio.connect_tcp(HOST, port) as stream:
        await stream.send(sent)
        return await answer(stream)


async def answer(stream: SocketStream) -> bytes:
    found = b""
    with anyio.fail_after(30):
        while b"\r\n\r\n" not in found or not found.endswith(b"}"):
            try:
                found += await stream.receive()
            except anyio.EndOfStream:
                break
    return found


async def test_messages_arrive_and_signals_are_left_alone():
    inbox, before = Inbox(), signal.getsignal(signal.SIGINT)
    async with served(inbox) as port, client(port) as sender:
        assert signal.getsignal(signal.SIGINT) is before
        for number in range(3):
            response = await sender.post("/events/a", content=b"%d" % number)
            assert response.json() == {"event": number + 1, "topic": "a"}
        assert (await sender.post("/events/a/b")).status_code == 404
    assert inbox.taken == [b"0", b"1", b"2"]
    with pytest.raises(OSError):  # noqa: PT011 - whichever
        await anyio.connect_tcp(HOST, port)


async def test_the_answer_waits_for_the_disk():
    inbox = Inbox()
    inbox.gate = anyio.Event()
    async with served(inbox) as port, client(port) as sender, anyio.create_task_group() as group:
        done = anyio.Event()

        async def post() -> None:
            assert (await sender.post("/events/a", content=b"x")).status_code == 202
            done.set()

        group.start_soon(post)
        with anyio.move_on_after(0.1):
            await done.wait()
        assert not done.is_set()
        inbox.gate.set()


async def test_stopping_finishes_what_is_under_way():
    inbox = Inbox()
    inbox.gate = anyio.Event()
    codes: list[int] = []
    async with anyio.create_task_group() as outside, served(inbox) as port:

        async def post() -> None:
            async with client(port) as sender:
                codes.append((await sender.post("/events/a")).status_code)

        outside.start_soon(post)
        await inbox.asked.wait()
        outside.start_soon(open_later, inbox.gate)
    assert codes == [202]


async def open_later(gate: anyio.Event) -> None:
    await anyio.sleep(0.2)
    gate.set()


async def pieces(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * 10_000


@pytest.mark.parametrize("headers", [{}, {"Content-Length": "5000000"}])
async def test_too_much_is_refused_and_the_sender_hears_it(headers: dict[str, str]):
    inbox = Inbox()
    async with served(inbox) as port, client(port) as sender:
        response = await sender.post("/events/a", content=pieces(500), headers=headers)
        assert response.status_code == 413
        assert response.json()["code"] == "E501"
        # A wrong token is told as well, however much was sent.
        response = await sender.post(
            "/events/a", content=b"x" * 5_000_000, headers={"Authorization": "Bearer wrong"}
        )
        assert response.status_code == 401
    assert inbox.taken == []


async def test_who_asks_first_need_not_send():
    head = (
        f"POST /events/a HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Expect: 100-continue\r\nContent-Length: {MOST + 1}\r\n\r\n"
    )
    async with served(Inbox()) as port:
        assert (await talk(port, head.encode())).startswith(b"HTTP/1.1 413 ")


async def test_a_message_that_is_cut_off_is_none():
    inbox = Inbox()
    head = f"POST /events/a HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKEN}\r\n"
    async with served(inbox) as port:
        async with await anyio.connect_tcp(HOST, port) as stream:
            await stream.send(head.encode() + b"Content-Length: 10\r\n\r\n12345")
        async with client(port) as sender:
            assert (await sender.post("/events/a", content=b"whole")).status_code == 202
    assert inbox.taken == [b"whole"]


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x00\xee\r\n\r\n", b"GET\r\n\r\n", b"POST /events/a\r\n\r\n"]
)
async def test_what_is_not_http_is_refused(sent: bytes):
    async with served(Inbox()) as port, client(port) as sender:
        # The faster parser takes a request without a version for one, which then has no token.
        assert {b"400", b"401"} & set((await talk(port, sent)).split(b" ", 2))
        assert (await sender.post("/events/a")).status_code == 202


async def test_a_port_in_use_is_named():
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(errors.Conflict, match=f"port {port} of {HOST} is in use") as caught:
            front.listen(HOST, port, roam=False)
        assert caught.value.hint


@pytest.mark.parametrize(
    "host, port", [(HOST, -1), (HOST, 70000), ("192.0.2.1", 0), ("\udc80", 0), ("a\0b", 0)]
)
async def test_what_cannot_be_listened_on_is_named(host: str, port: int):
    with pytest.raises(errors.UsageError):
        front.listen(host, port, roam=False)
