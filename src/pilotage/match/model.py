"""The nouns of matching."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec


class Offer(msgspec.Struct, frozen=True):
    """What a place to run has, in all and free now."""

    #: Its name.
    site: str
    #: Cores, in all and free.
    cpus: int
    free_cpus: int
    #: Bytes of memory, in all and free.
    memory: int
    free_memory: int
    #: GPUs, in all and free.
    gpus: int = 0
    free_gpus: int = 0


if TYPE_CHECKING:
    from pilotage.job.model import Resources


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
