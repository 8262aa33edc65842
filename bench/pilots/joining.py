"""A storm of pilots that join, each by a connection of its own."""

from __future__ import annotations

from pathlib import Path

from bench.swarm.pilot import Node
from bench.swarm.place import Place
from bench.swarm.swarm import Shape, run, swarm


def joining(scratch: Path, *, pilots: int, tls: bool) -> float:
    """Return how many pilots a second connect, enrol, pass their checks and are given work."""
    place = Place.make(scratch, tls=tls)
    shape = Shape(port=place.port, node=Node(1, place.enrol), tls=place.tls)
    with place.hub(), swarm(shape) as one:
        return pilots / run(one.join(pilots))
