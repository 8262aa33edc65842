"""Places that are alike to a job, seen as one: what `why` compares a job with."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from pilotage.job.model import Resources
from pilotage.match import expr
from pilotage.match.place import Place
from pilotage.match.why import SlotClass


def classes(
    places: Iterable[Place], wanted: Resources, requirements: str, now: float
) -> list[SlotClass]:
    """Count places that do not differ in what the job asks for."""
    names = sorted(expr.parse(requirements).names) if requirements else []
    found: dict[tuple[object, ...], SlotClass] = {}
    for place in places:
        total, free = _total(place, now), _free(place)
        room = all(free[name] >= (getattr(wanted, name) or 0) for name in free)
        seen = tuple(repr(place.attributes.get(name)) for name in names)
        key = (*total.values(), room, seen)
        known = found.get(key)
        if known is None:
            found[key] = SlotClass(place.attributes, 1, total, {**total, **free})
        else:
            found[key] = msgspec.structs.replace(known, count=known.count + 1)
    return list(found.values())


def _total(place: Place, now: float) -> dict[str, float]:
    total: dict[str, float] = {
        "cpus": place.cpus, "memory": place.memory, "gpus": place.gpus, "disk": place.disk,
    }  # fmt: skip
    if place.until < math.inf:
        # To the minute: pilots that came together go together.
        total["time"] = max(0.0, (place.until - now) // 60 * 60)
    return total


def _free(place: Place) -> dict[str, float]:
    return {
        "cpus": place.free_cpus, "memory": place.free_memory, "gpus": place.free_gpus,
        "disk": place.free_disk,
    }  # fmt: skip
