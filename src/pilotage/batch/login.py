"""The program at a login node: brought there, started, spoken to, let go."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import re
from asyncio import StreamReader
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import msgspec

from pilotage.base import errors
from pilotage.batch.bootstrap import BOOTSTRAP
from pilotage.batch.shell.model import Shell
from pilotage.batch.wire import Wire

#: How long the program may take to start, on a file system that may be slow.
_BOOT_S = 120.0
#: How long it may take to end once it has nothing to listen to.
_LEAVE_S = 3.0
#: Bytes that are kept of what it complains of.
_KEPT = 4096
#: Lines that a login shell may print on its own before it does what it was asked for.
_NOISE = 1000
_SIGN = re.compile(rb"(have|need|old|bad)(?: (.*))?\n")

News = Callable[[list[dict[str, Any]]], None]


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """What the program at the login node says of itself and where it is."""

    host: str = ""
    user: str = ""
    home: str = ""
    #: The folder of this project at the site, absolute.
    root: str = ""
    #: Its Python.
    python: str = ""
    #: Its clock.
    time: float = 0.0
    #: Bytes that are free at `root`.
    free: int = 0
    pid: int = 0
    #: The digest of the program.
    version: str = ""


class Hand:
    """The program, as it runs."""

    def __init__(
        self, name: str, process: Process, wire: Wire, complaints: asyncio.Task[str]
    ) -> None:
        """Take the process and its two ways of speaking."""
        self._name = name
        self._process = process
        self._wire = wire
        self._complaints = complaints
        self._listening = asyncio.create_task(wire.listen())
        self.hello = Hello()

    async def ask(self, op: str, values: dict[str, Any], patience: float) -> dict[str, Any]:
        """Ask it something; see `Wire.ask`."""
        return await self._wire.ask(op, values, patience)

    async def greet(self) -> None:
        """Hear where it is."""
        try:
            self.hello = msgspec.convert(await self.ask("hello", {}, _BOOT_S), Hello)
        except msgspec.ValidationError as error:
            words = f"what it says of itself is not understood: {error}"
            raise _ended(self._name, words) from error
        except errors.Unsure as error:
            if not self._listening.done():
                # It is there, and a dead file server keeps it from answering.
                raise _ended(self._name, error.message) from error
            await self.gone()

    async def gone(self) -> None:
        """Wait until it has ended, and raise why."""
        await self._listening
        raise _ended(self._name, await self._complaints or "the connection was lost")

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def leave(self) -> None:
        """Let it end by itself, which it does when nobody speaks to it any more."""
        self._wire.close()
        # Also if we are called off, which would otherwise end each wait at once.
        with anyio.CancelScope(shield=True):
            await _end(self._process)
            self._listening.cancel()
            self._complaints.cancel()
            await asyncio.gather(self._listening, self._complaints, return_exceptions=True)


class Boot:
    """How the program gets to a site and is started there."""

    def __init__(self, name: str, python: str, folder: str, program: bytes) -> None:
        """Take the site's name, its Python, the folder there, and the program."""
        self._name = name
        self._python = python
        self._folder = folder
        self._program = program
        self.digest = hashlib.sha256(program).hexdigest()

    @contextlib.asynccontextmanager
    async def begin(self, shell: Shell, on_news: News) -> AsyncIterator[Hand]:
        """Start the program; it is let go at the end."""
        process = await shell.start(self._command())
        try:
            complaints = asyncio.create_task(_last_words(process.stderr))
            wire = await self._deliver(process, complaints, on_news)
            hand = Hand(self._name, process, wire, complaints)
        except BaseException:
            await _end(process)
            raise
        try:
            await hand.greet()
            yield hand
        finally:
            await hand.leave()

    def _command(self) -> list[str]:
        # On one line: there are login shells that take no line end within quotes.
        packed = base64.b64encode(BOOTSTRAP.encode()).decode()
        text = f"import base64;exec(base64.b64decode('{packed}'))"
        return [self._python, "-c", text, self._folder, self.digest, str(len(self._program))]

    async def _deliver(
        self, process: Process, complaints: asyncio.Task[str], on_news: News
    ) -> Wire:
        if process.stdin is None or process.stdout is None:
            raise errors.PilotageError("the shell gave no pipes")
        wire = Wire(self._name, process.stdout, process.stdin, on_news)
        try:
            async with asyncio.timeout(_BOOT_S):
                word, more = await _sign(process.stdout)
                if word == "need":
                    process.stdin.write(self._program)
                    await process.stdin.drain()
        except TimeoutError:
            message = f"nothing was heard within {_BOOT_S:g} s"
            raise _ended(self._name, message) from None
        except OSError:
            word = ""
        if word == "old":
            message = f"{self._name}: `{self._python}` is Python {more}, which is too old"
            raise errors.Unavailable(message, hint="`python` in the site's file names a newer one")
        if word not in ("have", "need"):
            raise _ended(self._name, more or await complaints or "no reason is given")
        return wire


async def _sign(stream: StreamReader) -> tuple[str, str]:
    """Read the first line that is meant for us; nothing if there is none."""
    for _ in range(_NOISE):
        try:
            line = await stream.readline()
        except ValueError:
            return "", "it prints a line without end before it is asked for anything"
        if found := _SIGN.fullmatch(line):
            return found[1].decode(), (found[2] or b"").decode(errors="replace")
        if not line:
            break
    return "", ""


async def _last_words(stream: StreamReader | None) -> str:
    """Read all that is written, and return its last line."""
    kept = b""
    while stream and (data := await stream.read(1 << 16)):
        kept = (kept + data)[-_KEPT:]
    lines = kept.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _ended(name: str, words: str) -> errors.PilotageError:
    hint = f"`pilotage site check {name}` tells more"
    return errors.Unavailable(f"{name}: {words}", hint=hint)


async def _end(process: Process) -> None:
    """Give it a little time to end, then none.

    What it left at the site may hold its pipes open, so the end of those is not waited for.
    """
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _LEAVE_S)
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
