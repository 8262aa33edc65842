"""What a factory keeps of the pilots that hubs want, each in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from pilotage.agent.share import Claim, Use
from pilotage.base import text
from pilotage.batch.wish import Wish
from pilotage.edge.factory.wire import (
    LONGEST,
    FactoryOrders,
    FactoryPilot,
    FactoryReport,
    FactorySite,
)
from pilotage.store import Db

UNWANTED = "its hub does not want it any more"
ORPHANED = "its hub has no file here any more"
ROOM = "called off: it waited, and another hub has less"


class Wanted(msgspec.Struct, frozen=True):
    """A pilot that a hub wants, and that was not taken on."""

    claim: Claim
    #: What the hub calls the site.
    theirs: str
    wish: Wish
    #: Why it is not started at all; empty if it may be.
    objection: str


def report(
    db: Db, hub: str, factory: str, words: Mapping[str, str], now: float
) -> FactoryReport:  # fmt: skip
    """Write down all that is here for a hub, under a new number; `words` are by its sites."""
    turn = int(db.value("fed_turn", hub=hub, least=int(now * 1000)))
    held: dict[str, list[FactoryPilot]] = {theirs: [] for theirs in words}
    for theirs, remote, state, reason in db.rows("guest_report", hub=hub):
        told = reason if len(reason) <= LONGEST else reason[: LONGEST - 1] + "…"
        held.setdefault(theirs, []).append(FactoryPilot(remote, state, told))
    sites = (
        FactorySite(theirs, words.get(theirs, "")[:LONGEST], tuple(some))
        for theirs, some in held.items()
    )
    return FactoryReport(factory, turn, tuple(sites))


def heed(db: Db, hub: str, orders: FactoryOrders, now: float) -> None:
    """Let go of what the hub has heard the end of, and call off what it does not want."""
    for order in orders.sites:
        db.run("guest_drop", hub=hub, remotes=text.dump(order.heard))
        db.run("guest_off", hub=hub, remotes=text.dump(order.off), words=UNWANTED)
    db.run("fed_heard", hub=hub, now=now)


def take(db: Db, some: Iterable[Wanted], now: float) -> None:
    """Take pilots on, each once; of one that is not started at all, the hub is told so."""
    for one in some:
        db.run(
            "guest_add", hub=one.claim.hub, remote=one.claim.number, site=one.claim.site,
            theirs=one.theirs, wish=text.dump(one.wish), cores=one.claim.cores, now=now,
            state="ended" if one.objection else "waits", reason=one.objection,
        )  # fmt: skip


def known(db: Db, hub: str, numbers: Sequence[int]) -> set[int]:
    """Say which pilots of a hub were taken on."""
    return {row[0] for row in db.rows("guest_known", hub=hub, remotes=text.dump(numbers))}


def held(db: Db) -> dict[str, int]:
    """Say how many pilots of each hub are kept, those too of whose end it has not heard."""
    found: dict[str, int] = {}
    for hub, _, count, _ in db.rows("guest_counts"):
        found[hub] = found.get(hub, 0) + count
    return found


def uses(db: Db) -> tuple[dict[str, Use], dict[str, int], dict[str, int]]:
    """Say what each hub has, how many pilots each site has, and how many of them are leaving."""
    found: dict[str, Use] = {}
    there: dict[str, int] = {}
    leaving: dict[str, int] = {}
    for hub, site, count, cores, waiting, off in db.rows("guest_use"):
        use = found.setdefault(hub, Use())
        use.cores += cores
        use.waiting += waiting
        use.at = use.at | {site: waiting}
        there[site] = there.get(site, 0) + count
        leaving[site] = leaving.get(site, 0) + off
    return found, there, leaving


def give_back(db: Db, hub: str, site: str, count: int) -> None:
    """Call off pilots of a hub that wait at a site, the newest first."""
    rows = db.rows("guest_newest", hub=hub, site=site, most=count)
    db.run("guest_off", hub=hub, remotes=text.dump([row[0] for row in rows]), words=ROOM)


def tidy(db: Db, hubs: Sequence[str]) -> None:
    """Forget hubs that have no file: what waits for them is called off, what runs is left alone."""
    told = text.dump(hubs)
    db.run("guest_orphans", hubs=told, words=ORPHANED)
    db.run("guest_forget", hubs=told)
    db.run("fed_forget", hubs=told)
