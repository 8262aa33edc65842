"""What the parts of the workflow service say to each other."""

from __future__ import annotations

from typing import Protocol

import msgspec

from pilotage.bus.model import Input, Output
from pilotage.flow import order as orders
from pilotage.flow.model import End, Way


class Order(orders.Order, frozen=True, kw_only=True):
    """A task that is about to be sent, and where to."""

    way: Way
    #: The site; empty for a job of this hub that runs anywhere, and for a flow within.
    site: str


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """The data of an attempt: what it will find, and where it leaves what."""

    #: For a job at a site: what is brought there before it, and away from there after it.
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    #: For a job of this hub: its folder, which is there, with its inputs; empty means its own.
    folder: str = ""
    #: Where readers find what it leaves, with a slash at the end; empty if it leaves nothing.
    place: str = ""
    #: Bytes that will be read.
    read: int = 0


class Data(Protocol):
    """Hands data from one step to the next."""

    async def prepare(self, order: Order) -> Prepared:
        """Get the data of an attempt ready; may be called again for one that was not sent.

        Raise `errors.PilotageError` if it cannot be had: the attempt is then not made, and tried
        again later; raise `Unfit` if it never can.
        """
        ...

    async def check(self, task: int, number: int) -> End | None:
        """Look at what an attempt has left that says it is done; may be called again.

        Return how it really ended, with its result and files written down; nothing means that this
        is not known yet, and `check` is called again some time later.
        """
        ...


class Unfit(Exception):
    """A task that can never be sent as it is."""

    def __init__(self, reason: str) -> None:
        """Say why."""
        super().__init__(reason)
        self.reason = reason
