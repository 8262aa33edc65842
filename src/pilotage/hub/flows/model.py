"""What the parts of the workflow service say to each other."""

from __future__ import annotations

from typing import Protocol

import msgspec

from pilotage.bus.model import Input, Output
from pilotage.flow.model import End, Flow, Step, Way


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A task that is about to be sent somewhere: its next attempt, with nothing left open."""

    flow: int
    #: The name of the flow and its definition.
    name: str
    body: Flow
    step: str
    task: int
    #: The place of the task in the list that its step goes through.
    item: int
    #: The number of the attempt, and what the site will know it by.
    number: int
    key: str
    way: Way
    #: The site; empty for a job of this hub that runs anywhere, and for a flow within.
    site: str
    #: The step with all templates filled in.
    definition: Step
    owner: str


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


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What a site says that a job has left."""

    #: The digest of its manifest.
    digest: str = ""
    files: int = 0
    bytes: int = 0
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
        is not known yet, and `check` is called again with the next word on it.
        """
        ...


class Unfit(Exception):
    """A task that can never be sent as it is."""

    def __init__(self, end: End) -> None:
        """Take how it ends."""
        super().__init__(end.reason)
        self.end = end
