"""The nouns of matching."""

from __future__ import annotations

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
