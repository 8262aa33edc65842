"""The conversation with the program at a login node: frames out, answers and news in."""

from __future__ import annotations

import asyncio
import itertools
import json
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from typing import Any

from pilotage.base import errors

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


class Wire:
    """One connection to the program: questions are numbered, so answers may come in any order."""

    def __init__(
        self,
        name: str,
        reader: StreamReader,
        writer: StreamWriter,
        on_news: Callable[[list[dict[str, Any]]], None],
    ) -> None:
        """Take the name of the site, both ends, and who hears of news."""
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
        """Take in what comes until the other side has ended."""
        try:
            while frame := await unpack(self._reader):
                self._take(frame)
        finally:
            self.close()

    def close(self) -> None:
        """Tell everybody who waits that no answer will come."""
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
            answer.set_exception(errors.Unsure(f"{self._name} gives an answer that is none"))


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
        raise errors.Unavailable(f"what arrives is no frame: {error}") from error
    if not isinstance(frame, dict):
        raise errors.Unavailable("what arrives is no frame: it is no object")
    return frame


def _news(told: object) -> list[dict[str, Any]]:
    """Check what is told unasked: nobody knows who is at the other end."""
    found: list[Any] = told if isinstance(told, list) else [told]
    if not all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in found):
        raise errors.Unavailable("what arrives is no news")
    return found


def _stray(data: bytes) -> errors.Unavailable:
    """Understand text in place of a frame: a program that could not even begin."""
    words = data.decode(errors="replace").partition("\n")[0]
    return errors.Unavailable(words.removeprefix("bad "))


def _lost(name: str, op: str) -> errors.Unsure:
    return errors.Unsure(f"the connection to {name} was lost after it had been asked to {op}")


def _error(name: str, frame: dict[str, Any]) -> errors.PilotageError:
    kind = _KINDS.get(str(frame.get("kind")), errors.PilotageError)
    hint = "make room at the site" if frame.get("kind") == "disk" else ""
    return kind(f"{name}: {frame['error']}", hint=hint)
