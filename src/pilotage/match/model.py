"""What this machine offers to jobs, and whether a job fits."""

from __future__ import annotations

import msgspec

from pilotage.job.model import Resources


class Offer(msgspec.Struct, frozen=True):
    """Resources of a place, in all and free now."""

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


def fits(needs: Resources, offer: Offer) -> bool:
    """Return whether a job fits into what is free now."""
    return (
        needs.cpus <= offer.free_cpus
        and (needs.memory or 0) <= offer.free_memory
        and needs.gpus <= offer.free_gpus
    )


def carve(needs: Resources, offer: Offer, sign: int = -1) -> Offer:
    """Subtract the resources of a job from an offer, or add them with `sign` = 1."""
    return Offer(
        offer.site, offer.cpus, offer.free_cpus + sign * needs.cpus,
        offer.memory, offer.free_memory + sign * (needs.memory or 0),
        offer.gpus, offer.free_gpus + sign * needs.gpus,
    )  # fmt: skip
