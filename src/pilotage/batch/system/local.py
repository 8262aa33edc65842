"""Background processes at the site itself, kept by the program that we bring along."""

from __future__ import annotations

import re

import msgspec

from . import words
from .model import BatchCommand, BatchError, BatchItem, BatchOrder
from .tools import ListCommand, Tools

#: What a machine without a batch system does not have.
_LACKS = {
    "nodes": "second node",
    "queue": "queues",
    "account": "accounts",
    "qos": "qualities of service",
    "constraint": "kinds of nodes",
    "reservation": "reservations",
    "gpus": "GPUs to give away",
    "extra": "options",
    "step": "steps",
}


class _Listing(msgspec.Struct, frozen=True):
    items: list[BatchItem]


def local(program: tuple[str, ...], folder: str) -> Tools:
    """Return the queue of one machine: how our program is run there, and where its queue is."""
    argv = (*program, "local", f"--root={folder}")
    listing = (*argv, "list")
    return Tools(
        name="local",
        submitter="local submit",
        order=lambda order: BatchCommand((*argv, "submit", *_options(order)), input=order.script),
        answer=re.compile(r"(?P<id>[1-9][0-9]*)", re.ASCII),
        final=re.compile("refused:"),
        live=ListCommand("local list", listing, _read, marked=False),
        canceller=(*argv, "cancel"),
        ids=r"[1-9][0-9]*(\.[0-9]+)?",
        versions=listing,
    )


def _options(order: BatchOrder) -> list[str]:
    words.refuse(order, "a machine alone", **_LACKS)
    options = [
        f"--key={order.key}",
        f"--folder={order.folder}",
        f"--count={order.count}",
        f"--cpus={order.tasks * order.cpus}",
    ]
    if order.memory is not None:
        options.append(f"--memory={order.memory}")
    if order.time is not None:
        options.append(f"--time={order.time}")
    return options


def _read(text: str) -> list[BatchItem]:
    """Read a listing; being JSON, it is whole or none."""
    try:
        found = msgspec.json.decode(text, type=_Listing)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise BatchError(f"local list: {error}") from None
    return [one for one in found.items if words.is_key(one.key)]
