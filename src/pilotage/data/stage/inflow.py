"""A stream of files from a site, read by threads."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

from pilotage.base import errors, text
from pilotage.data.stage.landing import Landing, Wrong, changed
from pilotage.data.transfer.trouble import trouble

_CHUNK = 1 << 20
_LONGEST_LINE = 1 << 16
#: Files that wait to be on disk for certain; each is open.
_FINISHERS = 4
_UNFINISHED = 32

#: Told of each file that has ended, well or not.
Ended = Callable[[Landing, Exception | None], None]


class Cut(Exception):
    """The stream has ended too early, or is not what was agreed."""


class Inflow:
    """Takes in the files of one channel, in the order in which they were asked for."""

    def __init__(
        self, landings: Sequence[Landing], ended: Ended, moved: Callable[[int], None]
    ) -> None:
        self._landings = landings
        self._ended = ended
        self._moved = moved
        self._room = threading.Semaphore(_UNFINISHED)
        self._buffer = memoryview(bytearray(_CHUNK))

    def run(self, pipe: int) -> None:
        """Read until the end; raise `Cut` if it comes early, `Unavailable` if the disk is full."""
        with (
            open(pipe, "rb", buffering=1 << 16) as stream,
            concurrent.futures.ThreadPoolExecutor(_FINISHERS, "landing") as pool,
        ):
            for landing in self._landings:
                self._one(landing, stream, pool)

    def _one(self, landing: Landing, stream: BinaryIO, pool: concurrent.futures.Executor) -> None:
        head = _head(stream)
        if "words" in head:
            self._ended(landing, _refusal(landing, head))
            return
        wanted = landing.wanted
        if head.get("size") != wanted.size or head.get("offset") != landing.offset:
            raise Cut("the site sends what was not asked for")
        try:
            landing.open()
        except OSError as error:
            self._ended(landing, trouble(error))
            self._read(None, wanted.size - landing.offset, stream)
            return
        try:
            self._read(landing, wanted.size - landing.offset, stream)
        except OSError as error:
            landing.close()
            raise trouble(error) from error
        except Cut:
            landing.close()
            raise
        self._room.acquire()
        pool.submit(self._finish, landing, bool(int(head.get("mode", 0)) & 0o100))

    def _read(self, landing: Landing | None, left: int, stream: BinaryIO) -> None:
        while left:
            view = self._buffer[: min(left, _CHUNK)]
            got = stream.readinto(view)  # type: ignore[attr-defined]
            if not got:
                raise Cut("")
            if landing is not None:
                landing.add(view[:got])
                self._moved(got)
            left -= got

    def _finish(self, landing: Landing, executable: bool) -> None:  # noqa: FBT001 - a bit of a mode
        try:
            landing.finish(executable=executable)
        except (errors.PilotageError, Wrong) as error:
            self._ended(landing, error)
        except OSError as error:
            self._ended(landing, trouble(error))
        else:
            self._ended(landing, None)
        finally:
            self._room.release()


def _head(stream: BinaryIO) -> dict[str, Any]:
    line = stream.readline(_LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise Cut("")
    try:
        head = text.load(line)
    except ValueError as error:
        raise Cut("the site sends what is not understood") from error
    if not isinstance(head, dict):
        raise Cut("the site sends what is not understood")
    return head


def _refusal(landing: Landing, head: dict[str, Any]) -> Exception:
    words = text.show(str(head["words"]))
    match head.get("kind"):
        case "changed":
            return changed(landing.wanted)
        case "missing":
            return errors.NotFound(f"the site does not have it any more: {words}")
        case "denied":
            return errors.Denied(f"the site refuses: {words}")
        case _:
            return errors.Unavailable(f"the site cannot read it: {words}")
