"""Messages by TCP: each connection is one message, from its first byte to its end.

    printf 'hello' | nc -N 127.0.0.1 PORT

If there is a token, the first line is `TOKEN <token>`. Once the message is on disk the answer is
`ok <event number>`; otherwise it is `error <code> <what is wrong>`. It need not be read.
"""

from __future__ import annotations

import errno
import hmac
import socket
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import anyio
from anyio.abc import SocketListener, SocketStream, TaskGroup, TaskStatus
from anyio.streams.buffered import BufferedByteReceiveStream

from pilotage.base import errors, text
from pilotage.event import message

#: Keeps a message (topic, body, identity) and returns its number once it is on disk.
Accept = Callable[[str, bytes, str], Awaitable[int]]

#: A sender that is silent for this many seconds is disconnected.
IDLE = 30.0
#: So many connections are read at once; more wait in the kernel, where they lose nothing.
CONNECTIONS = 64
#: A refused sender has this many seconds to read the reason.
_LINGER = 2.0


async def serve(
    accept: Accept,
    topic: str,
    port: int,
    token: str,
    max_size: int,
    host: str = "127.0.0.1",
    *,
    task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Accept messages of one topic until cancelled; report the port once it is open."""
    message.check_topic(topic)
    door = _Door(accept, topic, token.encode(), max_size)
    opened = bind(host, port)
    number: int = opened.getsockname()[1]
    listener = await SocketListener.from_socket(opened)
    async with listener, anyio.create_task_group() as group:
        task_status.started(number)
        await _listen(listener, door, group)


def bind(host: str, port: int) -> socket.socket:
    """Open a listening socket, or say why it cannot be had."""
    if not 0 <= port <= 65535:
        raise errors.UsageError(f"{port} is not a port", hint="a port is 1 to 65535; 0 is any")
    where = f"port {port} of {host}"
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family, backlog=2048)
    except ValueError:
        raise errors.UsageError(f"{host!r} is not the name of a host") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise errors.Conflict(
                f"{where} is in use", hint="stop what uses it, or choose another port"
            ) from error
        if error.errno == errno.EACCES:
            raise errors.Denied(f"{where} is not for us", hint="use one above 1023") from error
        raise errors.UsageError(f"cannot listen on {where}: {error.strerror}") from error


async def _listen(listener: SocketListener, door: _Door, group: TaskGroup) -> None:
    slots = anyio.Semaphore(CONNECTIONS)

    async def talk(stream: SocketStream) -> None:
        try:
            async with stream:
                await door.talk(stream)
        finally:
            slots.release()

    while True:
        await slots.acquire()
        group.start_soon(talk, await _next(listener))


async def _next(listener: SocketListener) -> SocketStream:
    while True:
        try:
            return await listener.accept()
        except OSError:
            # The peer is gone already, or we are out of file handles: that passes.
            await anyio.sleep(0.1)


class _Door:
    """One conversation after another: a message in, an answer out."""

    def __init__(self, accept: Accept, topic: str, token: bytes, max_size: int) -> None:
        self._accept = accept
        self._topic = topic
        self._token = token
        self._max_size = max_size

    async def talk(self, stream: SocketStream) -> None:
        """Receive one message; a connection that breaks before its end is ignored."""
        try:
            body = await self._read(BufferedByteReceiveStream(stream))
            number = await self._accept(self._topic, body, uuid.uuid4().hex)
        except errors.PilotageError as error:
            words = f"{error.message}; {error.hint}" if error.hint else error.message
            await _refuse(stream, f"error {error.code} {text.show(words)}\n".encode())
        else:
            with suppress(anyio.BrokenResourceError):
                await stream.send(b"ok %d\n" % number)

    async def _read(self, stream: BufferedByteReceiveStream) -> bytes:
        if self._token:
            await self._check(stream)
        chunks: list[bytes] = []
        size = 0
        while chunk := await _chunk(stream):
            chunks.append(chunk)
            size += len(chunk)
            if size > self._max_size:
                raise errors.TooLarge(f"a message has at most {self._max_size} bytes")
        if not (chunks or self._token):
            raise errors.UsageError("there was no message")
        return b"".join(chunks)

    async def _check(self, stream: BufferedByteReceiveStream) -> None:
        wanted = b"TOKEN " + self._token
        try:
            with _patience():
                line = await stream.receive_until(b"\n", len(wanted) + 2)
        except (anyio.DelimiterNotFound, anyio.IncompleteRead):
            line = b""
        if not hmac.compare_digest(line.removesuffix(b"\r"), wanted):
            raise errors.Denied("the token is missing or wrong", hint="send `TOKEN <token>` first")


async def _chunk(stream: BufferedByteReceiveStream) -> bytes:
    try:
        with _patience():
            return await stream.receive()
    except anyio.EndOfStream:
        return b""


@contextmanager
def _patience() -> Iterator[None]:
    try:
        with anyio.fail_after(IDLE):
            yield
    except TimeoutError:
        raise errors.TimedOut(
            f"nothing came for {IDLE:g} s", hint="close the sending side at the end"
        ) from None
    except anyio.BrokenResourceError:
        raise errors.UsageError("the connection broke before the end of the message") from None


async def _refuse(stream: SocketStream, answer: bytes) -> None:
    # Closing with bytes unread would reset the connection and destroy the answer on its way.
    gone = suppress(anyio.EndOfStream, anyio.BrokenResourceError, OSError)
    with anyio.move_on_after(_LINGER), gone:
        await stream.send(answer)
        await stream.send_eof()
        while True:
            await stream.receive()
