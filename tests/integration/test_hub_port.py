"""One port for HTTP and links: who calls is told by the first bytes, and nobody can block it."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import msgspec
import pytest
from anyio.abc import ByteStream
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pilotage.base import errors
from pilotage.hub import port as front
from pilotage.hub import tls

HOST = "127.0.0.1"
CALM = front.PortLimits(patience=60, http=5, callers=20, grace=0.5)
QUICK = front.PortLimits(patience=0.5, http=5, callers=20, grace=0.5)


#: Requests that the application has heard of.
BEGUN: list[str] = []


class Echo(asyncio.Protocol):
    """Answers a link with whatever it hears."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(b"link:" + data)


async def hello(_: Request) -> Response:
    return PlainTextResponse("hello")


async def slow(request: Request) -> Response:
    BEGUN.append(request.url.path)
    await anyio.sleep(0.3)
    return PlainTextResponse("done")


async def body(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def never(request: Request) -> Response:
    BEGUN.append(request.url.path)
    await anyio.sleep_forever()
    raise AssertionError


APP = Starlette(
    routes=[
        Route("/hello", hello),
        Route("/slow", slow),
        Route("/never", never),
        Route("/body", body, methods=["POST"]),
    ]
)


@asynccontextmanager
async def served(
    limits: front.PortLimits = CALM, context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    opened = front.listen(HOST, 0, roam=False)
    port: int = opened.getsockname()[1]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: front.serve(APP, Echo, opened, tls=context, limits=limits))
        yield port
        tasks.cancel_scope.cancel()


async def hear(stream: ByteStream, wanted: bytes = b"") -> bytes:
    """Read until something came, or to the end."""
    found = b""
    with anyio.fail_after(60), contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while not wanted or wanted not in found:
            found += await stream.receive()
    return found


async def test_links_and_http_share_a_port():
    async with served() as port:
        async with httpx2.AsyncClient(base_url=f"http://{HOST}:{port}") as client:
            for _ in range(3):
                answer = await client.get("/hello")
                assert answer.text == "hello"
                assert "date" in answer.headers
            assert (await client.get("/links")).status_code == 404
            assert (await client.post("/body", content=b"x" * 3_000_000)).text == "3000000"
        async with await anyio.connect_tcp(HOST, port) as stream:
            await stream.send(b"GET /link HTTP/1.1\r\n")
            assert await hear(stream, b"1.1\r\n") == b"link:GET /link HTTP/1.1\r\n"
            await stream.send(b"more")
            assert await hear(stream, b"more") == b"link:more"


@pytest.mark.parametrize("path, wanted", [("/link", b"link:GET /link "), ("/hello", b"hello")])
async def test_a_caller_who_speaks_slowly_is_understood(path, wanted):
    async with served() as port, await anyio.connect_tcp(HOST, port) as stream:
        for letter in f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode():
            await stream.send(bytes([letter]))
            await anyio.sleep(0.001)
        assert wanted in await hear(stream, wanted)


@pytest.mark.parametrize(
    "said", [b"", b"GET /li", b"GET", b"G", b"POST /body HTTP/1.1\r\nHost: h\r\n"]
)
async def test_a_caller_who_never_asks_is_hung_up_on(said):
    async with served(QUICK) as port:
        began = time.monotonic()
        async with await anyio.connect_tcp(HOST, port) as stream:
            if said:
                await stream.send(said)
            await hear(stream)
            assert time.monotonic() - began > 0.3
        async with httpx2.AsyncClient() as client:
            assert (await client.get(f"http://{HOST}:{port}/hello")).text == "hello"


async def test_a_second_request_that_never_comes_whole_is_hung_up_on_too():
    async with served(QUICK) as port, await anyio.connect_tcp(HOST, port) as stream:
        await stream.send(b"GET /hello HTTP/1.1\r\nHost: h\r\n\r\n")
        await hear(stream, b"hello")
        await stream.send(b"GET /hello HT")
        await hear(stream)


async def test_an_answer_that_takes_longer_than_our_patience_is_given():
    async with (
        served(front.PortLimits(patience=0.1, grace=0.5)) as port,
        httpx2.AsyncClient() as client,
    ):
        assert (await client.get(f"http://{HOST}:{port}/slow")).text == "done"


async def test_more_connections_than_there_is_room_for_are_refused_and_links_are_not():
    head = b"GET /never HTTP/1.1\r\nHost: h\r\n\r\n"
    async with served() as port, contextlib.AsyncExitStack() as stack:
        for _ in range(CALM.http):
            stream = await stack.enter_async_context(await anyio.connect_tcp(HOST, port))
            await stream.send(head)
        await anyio.sleep(0.2)
        async with await anyio.connect_tcp(HOST, port) as late:
            await late.send(head)
            assert b" 503 " in await hear(late)
        async with await anyio.connect_tcp(HOST, port) as link:
            await link.send(front.LINK)
            assert await hear(link, front.LINK) == b"link:" + front.LINK


async def test_stopping_lets_answers_end_but_waits_for_none_for_ever():
    answers: list[str] = []
    BEGUN.clear()
    async with anyio.create_task_group() as tasks:
        async with served(front.PortLimits(grace=2.0)) as port:

            async def get(path: str) -> None:
                async with httpx2.AsyncClient(timeout=30) as client:
                    with contextlib.suppress(httpx2.TransportError):
                        found = await client.get(f"http://{HOST}:{port}{path}")
                        answers.append(found.text)

            idle = await anyio.connect_tcp(HOST, port)
            tasks.start_soon(get, "/slow")
            tasks.start_soon(get, "/never")
            with anyio.fail_after(60):
                while len(BEGUN) < 2:  # noqa: ASYNC110 - whichever comes first
                    await anyio.sleep(0.01)
            began = time.monotonic()
        assert time.monotonic() - began < 20.0
        await idle.aclose()
        with anyio.fail_after(60):
            while "done" not in answers:  # noqa: ASYNC110 - the answer is what is waited for
                await anyio.sleep(0.01)
    with pytest.raises(OSError):  # noqa: PT011 - whichever
        await anyio.connect_tcp(HOST, port)


async def test_answers_do_not_wait_for_the_other_side():
    async with (
        served() as port,
        httpx2.AsyncClient(base_url=f"http://{HOST}:{port}") as client,
    ):
        # The kernel lets the first answers pass; all others would take 40 ms if they waited. Others
        # may keep the machine busy, but not all the time.
        soon = 0
        for number in range(600):
            began = time.monotonic()
            assert (await client.get("/hello")).text == "hello"
            soon += number >= 20 and time.monotonic() - began < 0.035
            if soon == 16:
                break
        assert soon == 16


async def test_an_idle_hub_stops_at_once():
    began = time.monotonic()
    async with served(front.PortLimits(grace=60.0)):
        await anyio.sleep(0.05)
    assert time.monotonic() - began < 20.0


def test_a_busy_port_is_passed_over_unless_it_was_asked_for():
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with front.listen(HOST, port, roam=True) as near:
            assert near.getsockname()[1] != port
        with pytest.raises(errors.Conflict, match="in use"):
            front.listen(HOST, port, roam=False)


class Settings(msgspec.Struct):
    host: str = HOST
    tls: str = "on"
    tls_cert: str = ""
    tls_key: str = ""
    names: tuple[str, ...] = ()


@pytest.mark.needs("openssl")
async def test_links_and_http_are_encrypted(tmp_path: Path):
    context = tls.context(Settings(), tmp_path)
    file = tls.authority(Settings(), tmp_path)
    trusting = ssl.create_default_context(cafile=str(file))
    async with served(QUICK, context) as port:
        async with httpx2.AsyncClient(verify=trusting) as client:
            assert (await client.get(f"https://{HOST}:{port}/hello")).text == "hello"
        async with await anyio.connect_tcp(
            HOST, port, ssl_context=trusting, tls_standard_compatible=False
        ) as stream:
            await stream.send(front.LINK)
            assert await hear(stream, front.LINK) == b"link:" + front.LINK
        async with httpx2.AsyncClient() as stranger:
            with pytest.raises(httpx2.ConnectError):
                await stranger.get(f"https://{HOST}:{port}/hello")
        old = ssl.create_default_context(cafile=str(file))
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, OSError)):
            await anyio.connect_tcp(HOST, port, ssl_context=old)
        # One who never shakes hands takes nobody's place.
        async with await anyio.connect_tcp(HOST, port) as silent:
            await hear(silent)


# -- the quicker loop and parser, where they are installed -----------------------------------------


@pytest.fixture
def quick_loop() -> dict[str, Any]:
    if importlib.util.find_spec("uvloop") is None or importlib.util.find_spec("httptools") is None:
        pytest.skip("uvloop and httptools are not installed")
    return {"use_uvloop": True}


@pytest.mark.needs("openssl")
def test_it_is_the_same_with_uvloop_and_httptools(quick_loop, tmp_path):
    async def all_of_it() -> None:
        await test_links_and_http_share_a_port()
        await test_a_caller_who_speaks_slowly_is_understood("/hello", b"hello")
        await test_a_second_request_that_never_comes_whole_is_hung_up_on_too()
        await test_more_connections_than_there_is_room_for_are_refused_and_links_are_not()
        await test_stopping_lets_answers_end_but_waits_for_none_for_ever()
        await test_links_and_http_are_encrypted(tmp_path)

    anyio.run(all_of_it, backend_options=quick_loop)
