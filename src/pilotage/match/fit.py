"""Does a job fit an offer? The answer carries its reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotage import units
from pilotage.match.model import Offer, Verdict

if TYPE_CHECKING:
    from pilotage.job.model import Resources


def fit(needs: Resources, offer: Offer) -> Verdict:
    """Compare what a job needs with what a place has, in all and free."""
    never, later = [], []
    for name, need, whole, free, show in (
        ("cpus", needs.cpus, offer.cpus, offer.free_cpus, str),
        ("memory", needs.memory or 0, offer.memory, offer.free_memory, units.bytes_for_people),
        ("gpus", needs.gpus, offer.gpus, offer.free_gpus, str),
    ):
        if need > whole:
            never.append(f"needs {name} = {show(need)}; {offer.site} has {show(whole)} in all")
        elif need > free:
            later.append(f"needs {name} = {show(need)}; {offer.site} has {show(free)} free now")
    return Verdict(now=not never and not later, ever=not never, reasons=(*never, *later))


def fits(needs: Resources, offer: Offer) -> bool:
    """Say only whether it fits now; for the loop that fills free places."""
    return (
        needs.cpus <= offer.free_cpus
        and (needs.memory or 0) <= offer.free_memory
        and needs.gpus <= offer.free_gpus
    )


def carve(needs: Resources, offer: Offer, sign: int = -1) -> Offer:
    """Take a job's share from an offer, or give it back with `sign` = 1."""
    return Offer(
        offer.site, offer.cpus, offer.free_cpus + sign * needs.cpus,
        offer.memory, offer.free_memory + sign * (needs.memory or 0),
        offer.gpus, offer.free_gpus + sign * needs.gpus,
    )  # fmt: skip
