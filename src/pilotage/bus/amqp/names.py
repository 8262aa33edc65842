"""Topics and patterns, as AMQP writes them."""

from __future__ import annotations

import re

from pilotage.base import errors

from .model import Broker

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
