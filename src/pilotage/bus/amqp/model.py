"""Settings of a broker connection, and names of topics, patterns and queues in AMQP."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from pilotage.base import errors


class Broker(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A broker, and how we show who we are."""

    #: Such as `amqps://broker.example.org:5671/`; the path is the virtual host.
    url: str
    #: File of the certificates that vouch for the broker; empty means those of the system.
    ca: str = ""
    #: Files of our certificate and its key, read anew with each connection.
    certificate: str = ""
    key: str = ""
    #: Our name as the broker reads it in the certificate; messages carry it, and the broker checks.
    user: str = ""
    #: The exchange of all topics, and the one for messages that nobody could deal with.
    exchange: str = "pilotage"
    dead: str = "pilotage.dead"
    #: Names of queues by pattern; the rest are named after exchange and pattern.
    queues: Mapping[str, str] = {}
    #: Patterns of which one subscriber at a time gets messages, the others only when it is gone.
    single: tuple[str, ...] = ()
    #: Patterns whose queues nobody reads after us: they go some minutes later, and what is too much
    #: for them is dropped, so that it is nothing to who sends.
    passing: tuple[str, ...] = ()
    #: Patterns whose queues go when nobody has read them for a week, and drop the oldest when they
    #: are full: what is missing then is asked for again, and nobody who sends must wait.
    fading: tuple[str, ...] = ()
    #: Seconds between signs of life; after some three without any the connection is given up.
    heartbeat: int = 15
    #: Seconds that sending may take, and a new connection.
    patience: float = 30.0
    #: Seconds between two attempts to connect, at most; the first come sooner.
    retry: float = 30.0
    #: Messages that a queue holds at most.
    most: int = 1_000_000

    @property
    def place(self) -> str:
        """Where it is, without a password that may be in the address."""
        return place(self.url)


def place(url: str) -> str:
    """Return an address without a password that may be in it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


#: What a name in AMQP may take at most, in bytes.
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
    # Stars are not among what names of queues may hold.
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
