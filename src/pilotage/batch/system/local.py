"""Background processes at the site itself, kept by the program that we bring along."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from . import lacks, words
from .model import BatchError, Call, Cause, Item, Order, Phase, Said

_ID = re.compile(r"[1-9][0-9]*(\.[0-9]+)?", re.ASCII)
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


class _Entry(msgspec.Struct, frozen=True):
    key: str
    id: str
    index: int
    phase: Phase
    cause: Cause | None = None
    exit: int | None = None
    signal: int | None = None
    words: str = ""
    node: str = ""
    started: float | None = None
    ended: float | None = None


class _Listing(msgspec.Struct, frozen=True):
    items: list[_Entry]


class Local:
    """The queue of one machine, in a folder."""

    name: ClassVar[str] = "local"
    arrays: ClassVar[bool] = True

    def __init__(self, program: tuple[str, ...], folder: str) -> None:
        """Say how our program is run there, and where the queue is."""
        self._local = (*program, "local", f"--root={folder}")

    def submit(self, order: Order) -> Call:
        """Queue the script."""
        words.check(order)
        lacks.refuse(order, "a machine alone", **_LACKS)
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
        return Call((*self._local, "submit", *options), input=order.script)

    def submitted(self, said: Said) -> str:
        """Read the id of the submission."""
        if said.exit != 0:
            final = "refused:" in said.err
            raise BatchError(f"local submit: {words.complaint(said)}", final=final)
        if re.fullmatch(r"[1-9][0-9]*\n", said.out, re.ASCII):
            return said.out.strip()
        raise BatchError(f"local submit gave no id but {said.out[:200]!r}")

    def listing(self) -> Call:
        """List all items, also those that ended within a day."""
        return Call((*self._local, "list"))

    def listed(self, said: Said) -> list[Item]:
        """Read a listing; being JSON, it is whole or none."""
        if said.exit != 0:
            raise BatchError(f"local list: {words.complaint(said)}")
        try:
            found = msgspec.json.decode(said.out, type=_Listing)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise BatchError(f"local list: {error}") from None
        return [Item(**msgspec.structs.asdict(one)) for one in found.items if words.is_key(one.key)]

    def history(self, since: float) -> Call | None:
        """Have none beside the listing."""
        del since
        return None

    def remembered(self, said: Said) -> list[Item]:
        """Have nothing to remember."""
        del said
        return []

    def cancel(self, ids: Sequence[str]) -> Call:
        """Call items off, or whole submissions."""
        if not ids:
            raise BatchError("no job to call off", final=True)
        for name in ids:
            if not _ID.fullmatch(name):
                raise BatchError(f"{name!r} is no id of a job", final=True)
        return Call((*self._local, "cancel", *ids))

    def version(self) -> Call:
        """See whether our program runs there."""
        return Call((*self._local, "list"))
