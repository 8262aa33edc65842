"""What factories and hubs say to each other: closed and bounded on both sides."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pilotage.batch.wish import Wish

#: Pilots of one site in a report, those that are wanted in an answer, and those that enrol at once.
MOST_HELD, MOST_WANTED, MOST_SECRETS = 20_000, 500, 200
#: Sites in one report.
MOST_SITES = 32
#: Characters of what is said for people.
LONGEST = 400

Number = Annotated[int, Meta(ge=1, le=2**53)]
Site = Annotated[str, Meta(pattern="^[A-Za-z][A-Za-z0-9_-]{0,39}$")]
Words = Annotated[str, Meta(max_length=LONGEST)]
Numbers = Annotated[tuple[Number, ...], Meta(max_length=MOST_HELD)]

#: How far a pilot is at the factory; the last two are ends.
Stage = Literal["waits", "submitted", "running", "off", "ended"]
OVER: frozenset[str] = frozenset({"off", "ended"})


class FactoryPilot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pilot that a factory has, by the number that it has at the hub."""

    pilot: Number
    state: Stage
    words: Words = ""


class FactorySite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All pilots that a factory has for one site of the hub."""

    site: Site
    #: How it goes there, for people.
    words: Words = ""
    pilots: Annotated[tuple[FactoryPilot, ...], Meta(max_length=MOST_HELD)] = ()


class FactoryReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that a factory has for a hub at this moment."""

    #: The name that the factory has among all.
    factory: Annotated[str, Meta(pattern="^[0-9a-f]{12}$")]
    #: Each report has a higher number than the one before.
    turn: Number
    sites: Annotated[tuple[FactorySite, ...], Meta(max_length=MOST_SITES)]


class FactoryWant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pilot that a hub wants."""

    pilot: Number
    wish: Wish


class FactoryOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a hub wants at one of its sites."""

    site: Site
    #: Pilots that are not in the report; those that were wanted first come first.
    wanted: Annotated[tuple[FactoryWant, ...], Meta(max_length=MOST_WANTED)] = ()
    #: Pilots of the report that nobody wants any more.
    off: Numbers = ()
    #: Pilots of the report whose ends are on disk here: they need not be told again.
    heard: Numbers = ()


class FactoryOrders(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to a report."""

    sites: Annotated[tuple[FactoryOrder, ...], Meta(max_length=MOST_SITES)]


class FactoryEnrol(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pilots that are about to be submitted, and need secrets to be let in."""

    site: Site
    pilots: Annotated[tuple[Number, ...], Meta(min_length=1, max_length=MOST_SECRETS)]


class FactorySecret(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What lets one pilot in, once."""

    pilot: Number
    secret: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{20,200}$")]


class FactorySecrets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Secrets of those pilots that are still wanted."""

    secrets: Annotated[tuple[FactorySecret, ...], Meta(max_length=MOST_SECRETS)]
