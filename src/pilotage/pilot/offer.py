"""A node as the matchmaker sees it."""

from __future__ import annotations

import math
from typing import Any

from pilotage.match.place import Place
from pilotage.match.wish import FOLDER, ONLY_APPLICATIONS
from pilotage.pilot.model import Facts, Project


def place(number: int, site: str, pool: str, facts: Facts, until: float = math.inf) -> Place:
    """Describe a pilot to the matchmaker; site and pool are those of its token."""
    return Place(
        number, site, attributes(facts, site, pool), cpus=facts.cpus, memory=facts.memory,
        gpus=len(facts.gpus), disk=facts.disk, until=until,
    )  # fmt: skip


def attributes(facts: Facts, site: str, pool: str) -> dict[str, Any]:
    """Say what requirements may ask for; a node cannot say of itself what it is not."""
    return {
        **facts.attributes,
        "host": facts.host, "os": facts.os, "arch": facts.arch, "release": facts.release,
        "python_version": facts.python_version, "sandboxes": list(facts.sandboxes),
        "gpu_names": [one.name for one in facts.gpus], "batch": facts.batch,
        "cpus": facts.cpus, "memory": facts.memory, "disk": facts.disk, "gpus": len(facts.gpus),
        "site": site, "pool": pool, FOLDER: facts.project != Project.HIDDEN,
        ONLY_APPLICATIONS: False,
    }  # fmt: skip


def end(facts: Facts, enrolled: float) -> float:
    """Say when the node is taken away."""
    return math.inf if facts.lifetime is None else enrolled + facts.lifetime
