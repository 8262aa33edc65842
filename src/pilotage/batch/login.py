"""The login helper: copied to a login node, started, called and closed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import itertools
import json
import re
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import anyio
import msgspec

from pilotage.base import errors
from pilotage.batch.shell.model import Shell

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


class HelperInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Host, user and folders of the program at the login node."""

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


class LoginHelper:
    """The program, as it runs."""

    def __init__(
        self, name: str, process: Process, wire: HelperLink, complaints: asyncio.Task[str]
    ) -> None:
        """Take the process and its link."""
        self._name = name
        self._process = process
        self._wire = wire
        self._complaints = complaints
        self._listening = asyncio.create_task(wire.listen())
        self.hello = HelperInfo()

    async def ask(self, op: str, values: dict[str, Any], patience: float) -> dict[str, Any]:
        """Send a request; see `HelperLink.ask`."""
        return await self._wire.ask(op, values, patience)

    async def greet(self) -> None:
        """Read where it is."""
        try:
            self.hello = msgspec.convert(await self.ask("hello", {}, _BOOT_S), HelperInfo)
        except msgspec.ValidationError as error:
            words = f"its greeting is not understood: {error}"
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
        """Close its input; it then ends by itself."""
        self._wire.close()
        # Also if we are cancelled, which would otherwise end each wait at once.
        with anyio.CancelScope(shield=True):
            await _end(self._process)
            self._listening.cancel()
            self._complaints.cancel()
            await asyncio.gather(self._listening, self._complaints, return_exceptions=True)


class HelperStart:
    """Installs the program at a site and starts it."""

    def __init__(self, name: str, python: str, folder: str, program: bytes) -> None:
        """Take the site's name, its Python, the folder there, and the program."""
        self._name = name
        self._python = python
        self._folder = folder
        self._program = program
        self.digest = hashlib.sha256(program).hexdigest()

    @contextlib.asynccontextmanager
    async def begin(self, shell: Shell, on_news: News) -> AsyncIterator[LoginHelper]:
        """Start the program; it is let go at the end."""
        process = await shell.start(self._command())
        try:
            complaints = asyncio.create_task(_last_words(process.stderr))
            wire = await self._deliver(process, complaints, on_news)
            helper = LoginHelper(self._name, process, wire, complaints)
        except BaseException:
            await _end(process)
            raise
        try:
            await helper.greet()
            yield helper
        finally:
            await helper.leave()

    def _command(self) -> list[str]:
        # On one line: there are login shells that take no line end within quotes.
        packed = base64.b64encode(BOOTSTRAP.encode()).decode()
        text = f"import base64;exec(base64.b64decode('{packed}'))"
        return [self._python, "-c", text, self._folder, self.digest, str(len(self._program))]

    async def _deliver(
        self, process: Process, complaints: asyncio.Task[str], on_news: News
    ) -> HelperLink:
        if process.stdin is None or process.stdout is None:
            raise errors.PilotageError("the shell gave no pipes")
        wire = HelperLink(self._name, process.stdout, process.stdin, on_news)
        try:
            async with asyncio.timeout(_BOOT_S):
                word, more = await _sign(process.stdout)
                if word == "need":
                    process.stdin.write(self._program)
                    await process.stdin.drain()
        except TimeoutError:
            message = f"no answer within {_BOOT_S:g} s"
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
            return "", "its login shell prints a line without end"
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
    hint = f"`pilotage site check {name}` says more"
    return errors.Unavailable(f"{name}: {words}", hint=hint)


async def _end(process: Process) -> None:
    """Wait a little for the end of the process, then kill it.

    What it left at the site may hold its pipes open, so the end of those is not waited for.
    """
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _LEAVE_S)
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


#: Bytes of one frame, at most: what a command said, and a little more.
LIMIT = 1 << 28

_HEAD = 4
#: Bytes of text in place of a frame that are shown.
_STRAY = 500

#: What an answer's kind of error becomes here.
_KINDS: dict[str, type[errors.PilotageError]] = {
    "disk": errors.Unavailable,
    "missing": errors.NotFound,
    "denied": errors.Denied,
    "usage": errors.UsageError,
    "timeout": errors.TimedOut,
}


class HelperLink:
    """One connection to the program: questions are numbered, so answers may come in any order."""

    def __init__(
        self,
        name: str,
        reader: StreamReader,
        writer: StreamWriter,
        on_news: Callable[[list[dict[str, Any]]], None],
    ) -> None:
        """Take the name of the site, both ends, and the listener for messages."""
        self._name = name
        self._reader = reader
        self._writer = writer
        self._on_news = on_news
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._over = False

    async def ask(self, op: str, values: dict[str, Any], patience: float) -> dict[str, Any]:
        """Ask, and return the answer.

        `Unavailable` means that nothing was sent, `Unsure` that no answer came.
        """
        # The pipe may be known to be broken before the end of what was said is read.
        if self._over or self._writer.is_closing():
            raise errors.Unavailable(f"{self._name} is not connected")
        number = next(self._numbers)
        frame = pack({"n": number, "op": op, **values})
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            async with asyncio.timeout(patience):
                self._writer.write(frame)
                await self._writer.drain()
                return await answer
        except TimeoutError:
            message = f"{self._name} was asked to `{op}` and did not answer within {patience:g} s"
            raise errors.Unsure(message) from None
        except OSError:
            raise _lost(self._name, op) from None
        finally:
            self._asked.pop(number, None)

    async def listen(self) -> None:
        """Receive frames until the other side has ended."""
        try:
            while frame := await unpack(self._reader):
                self._take(frame)
        finally:
            self.close()

    def close(self) -> None:
        """Fail all calls that wait for an answer."""
        self._over = True
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(_lost(self._name, "do something"))
        self._writer.close()

    def _take(self, frame: dict[str, Any]) -> None:
        if (news := frame.get("news")) is not None:
            self._on_news(_news(news))
            return
        number = frame.get("n")
        answer = self._asked.get(number) if isinstance(number, int) else None
        if answer is None or answer.done():
            return
        if "error" in frame:
            answer.set_exception(_error(self._name, frame))
        elif isinstance(found := frame.get("ok", {}), dict):
            answer.set_result(found)
        else:
            answer.set_exception(errors.Unsure(f"{self._name} sends an invalid answer"))


def pack(value: dict[str, Any]) -> bytes:
    """Make a frame: four bytes of length, then JSON."""
    # Odd bytes in names are half characters, which only escapes can carry.
    data = json.dumps(value, separators=(",", ":")).encode()
    if len(data) > LIMIT:
        raise errors.TooLarge(f"a frame of {len(data)} bytes is too long")
    return len(data).to_bytes(_HEAD, "big") + data


async def unpack(reader: StreamReader) -> dict[str, Any] | None:
    """Read a frame; nothing at the end, whole or not."""
    try:
        size = int.from_bytes(await reader.readexactly(_HEAD), "big")
        if size > LIMIT:
            raise _stray(size.to_bytes(_HEAD, "big") + await reader.read(_STRAY))
        frame = json.loads(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, OSError):
        return None
    except (ValueError, RecursionError) as error:
        raise errors.Unavailable(f"invalid frame: {error}") from error
    if not isinstance(frame, dict):
        raise errors.Unavailable("invalid frame: not an object")
    return frame


def _news(told: object) -> list[dict[str, Any]]:
    """Check unsolicited messages: the other end is not trusted."""
    found: list[Any] = told if isinstance(told, list) else [told]
    if not all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in found):
        raise errors.Unavailable("invalid news")
    return found


def _stray(data: bytes) -> errors.Unavailable:
    """Return the error for text in place of a frame: the program could not start."""
    words = data.decode(errors="replace").partition("\n")[0]
    return errors.Unavailable(words.removeprefix("bad "))


def _lost(name: str, op: str) -> errors.Unsure:
    return errors.Unsure(f"the connection to {name} was lost after it had been asked to {op}")


def _error(name: str, frame: dict[str, Any]) -> errors.PilotageError:
    kind = _KINDS.get(str(frame.get("kind")), errors.PilotageError)
    hint = "free space at the site" if frame.get("kind") == "disk" else ""
    return kind(f"{name}: {frame['error']}", hint=hint)


#: Python 3.6 must be able to read all of it, else it could not even say that it is too old.
BOOTSTRAP: Final = """
import os, sys
def say(words):
    os.write(1, words.encode("ascii", "replace") + b"\\n")
if sys.version_info < (3, 9):
    say("old %d.%d.%d" % sys.version_info[:3])
    sys.exit(3)
import hashlib
def whole(path):
    try:
        with open(path, "rb") as file:
            data = file.read(size + 1)
    except FileNotFoundError:
        return False
    return len(data) == size and hashlib.sha256(data).hexdigest() == sha
def sync(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)
def fetch():
    data = bytearray()
    while len(data) < size:
        piece = os.read(0, min(size - len(data), 1 << 18))
        if not piece:
            sys.exit(4)
        data += piece
    if hashlib.sha256(data).hexdigest() != sha:
        raise ValueError("the program arrived damaged")
    part = "%s.%d.part" % (target, os.getpid())
    try:
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(part, target)
    except OSError:
        if os.path.exists(part):
            os.unlink(part)
        raise
    sync(bin)
try:
    os.umask(0o077)
    root, sha, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    root = os.path.abspath(os.path.expanduser(root))
    bin = os.path.join(root, "bin")
    target = os.path.join(bin, sha + ".pyz")
    os.makedirs(bin, exist_ok=True)
    if whole(target):
        say("have")
    else:
        say("need")
        fetch()
    os.execv(sys.executable, [sys.executable, "-I", "-S", target, "hand", root])
except (OSError, ValueError) as error:
    say("bad " + str(error))
    sys.exit(5)
"""
