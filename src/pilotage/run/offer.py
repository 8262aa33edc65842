"""This machine, described to the matchmaker."""

from __future__ import annotations

import platform
import sys

from pilotage.match.place import Offer, Place
from pilotage.match.submission import FOLDER, ONLY_APPLICATIONS

#: The number of this machine among the pilots.
LOCAL = 0


def here(offer: Offer) -> Place:
    """Describe this machine to the matchmaker."""
    machine = platform.uname()
    attributes = {
        "site": offer.site, "host": machine.node, "os": machine.system.lower(),
        "arch": machine.machine, "python_version": platform.python_version(),
        "cpus": offer.cpus, "memory": offer.memory, "gpus": offer.gpus, "pool": "",
        FOLDER: True, ONLY_APPLICATIONS: False,
    }  # fmt: skip
    return Place(
        LOCAL, offer.site, attributes, cpus=offer.cpus, memory=offer.memory, gpus=offer.gpus,
        disk=sys.maxsize,
    )  # fmt: skip
