"""The verbs of the bus as frames, and the supported versions."""

from __future__ import annotations

import msgspec

from pilotage.base import errors
from pilotage.bus.port import MessageHeader
from pilotage.pilot import messages
from pilotage.pilot.messages import Message

#: The versions of these frames that this code speaks: the newest, and the one before it.
VERSIONS = (1, 1)
#: Bytes of one frame: a message of the bus is smaller, whatever it holds.
MOST = 4 << 20


class Publish(Message, frozen=True):
    """Send; the answer comes when the other side has it on disk."""

    topic: str
    body: str
    key: str = ""
    heard: bool = False


class Request(Message, frozen=True):
    """Send a request, and return its answer."""

    topic: str
    body: str
    #: Timeout in seconds.
    wait: float


class Subscribe(Message, frozen=True):
    """Start deliveries, with at most `ahead` unacknowledged messages."""

    id: int
    pattern: str
    ahead: int = 0


class Unsubscribe(Message, frozen=True):
    """Stop deliveries; unacknowledged messages are returned."""

    id: int


class Ack(Message, frozen=True):
    """Acknowledge deliveries, or return them."""

    tags: tuple[int, ...]
    done: bool = True


class Reply(Message, frozen=True):
    """Answer a request."""

    tag: int
    body: str


class Ping(Message, frozen=True):
    """Ask whether the other side is there."""


class DeliveryFrame(MessageHeader, frozen=True, kw_only=True):
    """A message for a subscriber."""

    #: The subscription.
    to: int
    body: str


Verb = Publish | Request | Subscribe | Unsubscribe | Ack | Reply | Ping
_verbs: msgspec.json.Decoder[Verb] = msgspec.json.Decoder(Verb)


def read(body: bytes) -> Verb:
    """Read a frame of an agent; anything else is refused."""
    return messages.decode(_verbs, body)


#: The oldest and the newest version of the frames that a side speaks.
Versions = tuple[int, int]


def agree(theirs: Versions, ours: Versions = VERSIONS) -> int:
    """Return the newest common version; raise an error that names the side to be upgraded."""
    found = min(theirs[1], ours[1])
    if found < max(theirs[0], ours[0]):
        older = "agent" if theirs[1] < ours[0] else "hub"
        message = (
            f"the {older} must be upgraded: the agent speaks versions {theirs[0]} to {theirs[1]} "
            f"of the link, the hub {ours[0]} to {ours[1]}"
        )
        raise errors.UsageError(message, hint=f"install a newer Pilotage for the {older}")
    return found
