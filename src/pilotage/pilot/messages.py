"""Messages of the link: a length and JSON each; unknown fields are refused, values are bounded."""

from __future__ import annotations

import re
import struct
from typing import Any, Literal, TypeVar

import msgspec

from pilotage.base import errors, text
from pilotage.job.model import JobRequest
from pilotage.pilot import model
from pilotage.pilot.model import NodeCheck, NodeFacts, ReportedEnd
from pilotage.run.model import Ending, EndReason, Usage

#: The largest message.
MOST_FRAME_BYTES = 16 << 20
#: How a caller asks for the link, and how that is granted.
UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: pilotage\r\n\r\n"
_LENGTH = struct.Struct(">I")


class Message(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op",
    tag=str.lower,
):  # fmt: skip
    """Fields of every message."""

    #: The sender's number, which the answer repeats; none means that no answer is wanted.
    n: int | None = None
    #: Which of the pilots on this connection speaks.
    p: int = 0


class Hello(Message, frozen=True):
    """A pilot enrols."""

    protocol: int
    token: str
    #: A secret that the node made: 64 hexadecimal digits.
    key: str
    facts: NodeFacts
    name: str = ""


class Ready(Message, frozen=True):
    """A pilot says what its checks found, and what it sees of the project's folder."""

    checks: tuple[NodeCheck, ...] = ()
    #: What the marker in the project's folder says; empty if the pilot cannot read it, nothing if
    #: it is of a version that does not look.
    seen: str | None = None
    #: Whether it may write to that folder.
    writable: bool = False
    #: What payloads in a sandbox see of it.
    shown: Literal["", "readable", "writable"] = ""


class Resume(Message, frozen=True):
    """A pilot that lost its connection goes on."""

    protocol: int
    pilot: int
    key: str
    #: Attempts that it holds or has results of.
    running: tuple[str, ...] = ()


#: Core-seconds that payloads have used and had since the pilot came, and their bytes of memory.
Used = tuple[float, float, int]


class Sync(Message, frozen=True):
    """A pilot says what ended, and asks for work."""

    ended: tuple[ReportedEnd, ...] = ()
    #: Attempts that began, and their processes.
    started: tuple[tuple[str, int], ...] = ()
    ahead: int = 0
    #: How long the answer may wait for something to do, in seconds.
    wait: float = 0.0
    #: Whether it takes no more.
    drain: bool = False
    #: What payloads were measured to use; nothing if that is not new.
    used: Used | None = None


class PayloadLog(Message, frozen=True, tag="log"):
    """A pilot sends what a payload wrote."""

    key: str
    stream: Literal["stdout", "stderr"]
    at: int
    #: Base64.
    data: str


class DataChannel(Message, frozen=True, tag="data"):
    """A pilot uses this connection for `fetch` and `home` messages only."""

    protocol: int
    pilot: int
    key: str


class Fetch(Message, frozen=True):
    """A pilot asks for content that an attempt of its reads; the bytes follow the answer."""

    key: str
    sha256: str
    #: How many bytes it has already.
    at: int = 0


class BringHome(Message, frozen=True, tag="home"):
    """A pilot returns outputs of an attempt; the answer lists the files whose bytes follow."""

    key: str
    #: By name, what was left: a size and a digest, or `files` by path below a folder.
    outputs: dict[str, Any]
    #: Paths on the node of those that are programs.
    executable: tuple[str, ...] = ()


class Leave(Message, frozen=True):
    """A pilot leaves."""

    reason: str = ""


class Login(Message, frozen=True):
    """A program authenticates."""

    protocol: int
    token: str


class Submit(Message, frozen=True):
    """A program queues jobs."""

    jobs: tuple[JobRequest, ...]


class AwaitEnds(Message, frozen=True, tag="ends"):
    """A program waits for the ends of its jobs."""

    tag: str
    after: int = 0
    wait: float = 0.0


class Cancel(Message, frozen=True):
    """A program cancels jobs."""

    jobs: tuple[int, ...]


class Agent(Message, frozen=True):
    """The agent of a site uses this connection for messages of the bus.

    What it proves its site with is replaced by a key of its own making, if that is another.
    """

    #: The oldest and the newest version of those messages that it speaks.
    versions: tuple[int, int]
    #: The site that it means to serve; which one it may speak for says the token.
    site: str
    token: str
    key: str
    #: Seconds between two signs of life.
    beat: float = 15.0


Any_ = (
    Hello
    | Ready
    | Resume
    | Sync
    | PayloadLog
    | DataChannel
    | Leave
    | Login
    | Submit
    | AwaitEnds
    | Cancel
    | Agent
)
_decoder: msgspec.json.Decoder[Any_] = msgspec.json.Decoder(Any_)
_data: msgspec.json.Decoder[Fetch | BringHome] = msgspec.json.Decoder(Fetch | BringHome)
_T = TypeVar("_T")


def read(body: bytes | memoryview) -> Any_:
    """Decode a message, or raise `UsageError`."""
    return decode(_decoder, body)


def read_data(body: bytes) -> Fetch | BringHome:
    """Read a message of a connection for data."""
    return decode(_data, body)


def decode(decoder: msgspec.json.Decoder[_T], body: bytes | memoryview) -> _T:
    """Decode a message of one kind, or raise `UsageError`."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"this is no message of the link: {error}"
        raise errors.UsageError(message, hint="both sides must have the same version") from None


def frame(body: bytes) -> bytes:
    """Put the length before a message."""
    return _LENGTH.pack(len(body)) + body


def answer(to: Message, facts: dict[str, Any]) -> bytes:
    """Write an answer."""
    return frame(msgspec.json.encode({"n": to.n, "p": to.p, **facts}))


def refusal(n: int | None, p: int, error: errors.PilotageError) -> bytes:
    """Write why a message was refused."""
    words = {"code": error.code, "message": error.message, "hint": error.hint}
    return frame(msgspec.json.encode({"n": n, "p": p, "error": words}))


class Frames:
    """Splits received bytes into messages."""

    def __init__(self, most: int = MOST_FRAME_BYTES) -> None:
        #: The largest message that is taken.
        self.most = most
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes; return the messages that are complete now."""
        buffer = self._buffer
        buffer += data
        found = []
        at = 0
        while len(buffer) - at >= 4:
            (length,) = _LENGTH.unpack_from(buffer, at)
            if length > self.most:
                message = f"a message of {length} bytes is too large"
                raise errors.UsageError(message, hint=f"at most {self.most} bytes")
            if len(buffer) - at - 4 < length:
                break
            found.append(bytes(buffer[at + 4 : at + 4 + length]))
            at += 4 + length
        if at:
            del buffer[:at]
        return found


_KEY = re.compile(r"[0-9a-f]{64}")
_ATTEMPT = re.compile(r"([1-9][0-9]{0,14})\.([1-9][0-9]{0,8})", re.ASCII)
#: The largest node that we believe in: cores, memory, disk, GPUs.
_MOST = (100_000, 1 << 50, 1 << 60, 1000)
#: Bytes of what a node may say of itself.
_MOST_FACTS = 1 << 16
_MOST_HOST = 255
#: Ends and starts in one message.
_MOST_NEWS = 50_000
_LAST_PID = 1 << 31
_FAR = 2**53
#: Characters of what is said of an end.
_MOST_WORDS = 2000


def check_version(protocol: int) -> None:
    """Refuse a pilot of another version."""
    if protocol != model.PROTOCOL:
        message = f"the pilot speaks version {protocol} of the link, this hub {model.PROTOCOL}"
        raise errors.UsageError(message, hint="take the pilot that this hub serves")


def check_hello(hello: Hello) -> None:
    """Refuse implausible values in a pilot's description of its node."""
    check_version(hello.protocol)
    if not _KEY.fullmatch(hello.key):
        raise errors.UsageError("the key of a pilot is 64 hexadecimal digits")
    facts = hello.facts
    sizes = (facts.cpus, facts.memory, facts.disk, len(facts.gpus))
    if facts.cpus < 1 or not all(0 <= one <= most for one, most in zip(sizes, _MOST, strict=True)):
        raise errors.UsageError(
            "these sizes of a node are not plausible", hint="correct what the pilot reports"
        )
    if not facts.work.startswith("/"):
        raise errors.UsageError("the folder of a pilot is an absolute path")
    if not (facts.host.isprintable() and 0 < len(facts.host) <= _MOST_HOST):
        raise errors.UsageError("this is no name of a host")
    if facts.lifetime is not None and not 0 <= facts.lifetime <= _FAR:
        raise errors.UsageError("this lifetime of a node is not plausible")
    if not all(map(_is_plain, facts.attributes.values())):
        raise errors.UsageError("an attribute is a text, a number, a truth value or a list of them")
    if len(text.dump(facts)) > _MOST_FACTS:
        raise errors.UsageError(f"a node has at most {_MOST_FACTS} bytes to say of itself")


def _is_plain(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    if isinstance(value, list):
        return all(isinstance(one, str | int | float) for one in value)
    return value is None or isinstance(value, str | int | float)


def check_pilot(number: int) -> None:
    """Refuse a number that no pilot can have."""
    if not 0 < number < _FAR:
        raise errors.NotFound(f"there is no pilot {number}", hint="enrol it again")


def check_sync(message: Sync) -> None:
    """Refuse more news than a pilot can have, and processes that cannot be."""
    if len(message.ended) > _MOST_NEWS or len(message.started) > _MOST_NEWS:
        raise errors.UsageError(f"one message has at most {_MOST_NEWS} ends and starts")
    if not all(0 < pid < _LAST_PID for _, pid in message.started):
        raise errors.UsageError("no process has such a number")
    if message.used is not None and not all(0 <= one <= _FAR for one in message.used):
        raise errors.UsageError("this usage of a payload is not plausible")


def attempt(key: str) -> tuple[int, int]:
    """Read the name of an attempt: its job and its number."""
    found = _ATTEMPT.fullmatch(key)
    if found is None:
        raise errors.UsageError(f"{text.show(key)[:100]!r} is no attempt")
    return int(found[1]), int(found[2])


def ending(end: model.ReportedEnd) -> Ending:
    """Return an end that a pilot reports, within what can be; an unknown reason is no evidence."""
    try:
        reason = EndReason(end.reason)
    except ValueError:
        reason = EndReason.LOST
    words = text.show(end.message)[:_MOST_WORDS] if end.message else ""
    usage = None if end.usage is None else _usage(end.usage)
    return Ending(
        end.key, end.time, number(end.exit), number(end.signal), reason, words, usage, end.result
    )


def _usage(used: Usage) -> Usage:
    """Bound the reported usage of a payload."""
    return Usage(
        size(used.wall), size(used.cpu_user), size(used.cpu_system), number(used.max_rss) or 0,
        number(used.read_bytes) or 0, number(used.written_bytes) or 0,
    )  # fmt: skip


def number(value: int | None) -> int | None:
    """Bound a number to what the store can hold."""
    return None if value is None else max(-_FAR, min(value, _FAR))


def size(value: float) -> float:
    """Bound a measured value."""
    return max(0.0, min(value, float(_FAR)))
