"""The batch queue of a site, described to the matchmaker."""

from __future__ import annotations

import math

from pilotage.base import units
from pilotage.batch.model import SiteSettings
from pilotage.job.model import State
from pilotage.match.cluster import QUEUE
from pilotage.match.place import Place, queue_mark
from pilotage.match.submission import ONLY_APPLICATIONS

_ANY = 1 << 40


def place_of(name: str, number: int, site: SiteSettings) -> Place:
    """Describe the batch queue of a site to the matchmaker."""
    memory = units.size(site.memory) if site.memory else _ANY
    cpus = site.cpus or _ANY
    attributes = {
        QUEUE: True, "site": name, "batch": site.batch, "cpus": cpus, "memory": memory,
        "gpus": site.gpus, "pool": "", "host": name, "sandboxes": [site.container],
        ONLY_APPLICATIONS: False,
    }  # fmt: skip
    place = Place(
        -1 - number, name, attributes, cpus=_ANY, memory=_ANY * 1024, gpus=_ANY if site.gpus else 0,
        disk=_ANY * 1024, until=math.inf,
    )  # fmt: skip
    place.slots = site.jobs
    place.begins = State.STAGING_IN
    place.holder = queue_mark(name)
    place.marks = {place.holder}
    return place
