"""Settings of a broker connection, and names of topics, patterns and queues in AMQP."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from pilotage.base import errors


class BrokerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Address of the broker, and the certificate that identifies this process."""

    #: Such as `amqps://broker.example.org:5671/`; the path is the virtual host. Empty means none.
    url: str = ""
    #: PEM file of the certificate authority of the broker; empty means those of the system.
    ca: str = ""
    #: PEM file of our certificate; it is read again for each connection, as the other two are.
    certificate: str = ""
    #: PEM file of its key.
    key: str = ""
    #: Our name as the broker reads it in the certificate; messages carry it, and the broker checks.
    user: str = ""
    #: The exchange of all topics.
    exchange: str = "pilotage"
    #: The exchange of messages that the broker could not deliver.
    dead: str = "pilotage.dead"
    #: Seconds between heartbeats of the connection; it is closed after about three are missed.
    heartbeat: int = 15
    #: Seconds that sending a message or connecting may take.
    patience: float = 30.0

    @property
    def place(self) -> str:
        """The address without a password."""
        return place(self.url)


class Broker(BrokerSettings, frozen=True, kw_only=True):
    """A broker as one process uses it."""

    #: Seconds between two attempts to connect, at most; the first come sooner.
    retry: float = 30.0
    #: Names of queues by pattern; the rest are named after exchange and pattern.
    queues: Mapping[str, str] = {}
    #: Patterns of which one subscriber at a time gets messages, the others only when it is gone.
    single: tuple[str, ...] = ()
    #: Patterns whose queues are for this process alone: they are deleted minutes after it ends, and
    #: drop messages when they are full, so that no sender has to wait.
    passing: tuple[str, ...] = ()
    #: Patterns whose queues are deleted after a week without a reader, and drop the oldest messages
    #: when they are full: what is missing is requested again, and no sender has to wait.
    fading: tuple[str, ...] = ()
    #: Messages that a queue holds at most.
    most: int = 1_000_000


def place(url: str) -> str:
    """Return an address without a password that may be in it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


#: Maximal bytes of a name in AMQP.
_LONGEST = 255
_NAME = re.compile(r"[\w.:@#,/<>-]+", re.ASCII)


def binding(pattern: str) -> str:
    """Write a pattern: `**` is any number of words, `*` one word."""
    words = pattern.split(".")
    for word in words:
        if "*" in word.strip("*") or (word.strip("*") and "*" in word) or "#" in word:
            message = f"a broker cannot match {word!r} in the pattern {pattern!r}"
            raise errors.ConfigError(message, hint="`*` and `**` stand for whole words")
    return checked(".".join({"**": "#", "*": "*"}.get(word, word) for word in words))


def queue(broker: Broker, pattern: str) -> str:
    """Name the queue of a pattern."""
    # Names of queues cannot have stars.
    made = f"{broker.exchange}:{pattern.replace('*', '@')}"
    name = checked(broker.queues.get(pattern, made))
    if not _NAME.fullmatch(name):
        raise errors.ConfigError(f"{name!r} cannot be the name of a queue")
    return name


def checked(name: str) -> str:
    """Return a name that AMQP can carry."""
    if len(name.encode()) > _LONGEST:
        raise errors.UsageError(f"{name[:40]!r}… is longer than the {_LONGEST} bytes of a name")
    return name
