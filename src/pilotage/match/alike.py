"""Places that are alike to a job, seen as one: what `why` compares a job with."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

import msgspec

from pilotage.job.model import Resources
from pilotage.match.place import Place
from pilotage.match.why import SlotClass

_Key = tuple[object, ...]
_NEEDS = ("cpus", "memory", "gpus", "disk", "time")


def classes(places: Iterable[Place], names: Collection[str], now: float) -> list[SlotClass]:
    """Count places that do not differ in what they have, what is free, and in these attributes."""
    found: dict[_Key, list[Place]] = {}
    left: dict[float, float] = {}
    for place in places:
        until = place.until
        if until not in left:
            # To the minute: pilots that came together go together.
            left[until] = max(0.0, (until - now) // 60 * 60) if until < math.inf else until
        key = (
            place.cpus, place.free_cpus, place.memory, place.free_memory, place.gpus,
            place.free_gpus, place.disk, place.free_disk, left[until], *_seen(place, names),
        )  # fmt: skip
        found.setdefault(key, []).append(place)
    return [_slot(alike[0], left[alike[0].until], len(alike)) for alike in found.values()]


def to_job(
    slots: Iterable[SlotClass], wanted: Resources, names: Collection[str]
) -> list[SlotClass]:
    """Count those as one that are the same to a job: only whether there is room matters."""
    needs = {name: getattr(wanted, name) for name in _NEEDS if getattr(wanted, name)}
    found: dict[_Key, SlotClass] = {}
    for slot in slots:
        room = all(slot.free.get(name, math.inf) >= need for name, need in needs.items())
        seen = (repr(slot.attributes.get(name)) for name in names)
        key = (room, *(slot.total.get(name) for name in needs), *seen)
        known = found.get(key)
        if known is not None:
            slot = msgspec.structs.replace(known, count=known.count + slot.count)  # noqa: PLW2901
        found[key] = slot
    return list(found.values())


def _seen(place: Place, names: Collection[str]) -> list[str]:
    return [repr(place.attributes.get(name)) for name in names]


def _slot(place: Place, left: float, count: int) -> SlotClass:
    total: dict[str, float] = {
        "cpus": place.cpus, "memory": place.memory, "gpus": place.gpus, "disk": place.disk,
    }  # fmt: skip
    free: dict[str, float] = {
        "cpus": place.free_cpus, "memory": place.free_memory, "gpus": place.free_gpus,
        "disk": place.free_disk,
    }  # fmt: skip
    if left < math.inf:
        total["time"] = free["time"] = left
    return SlotClass(place.attributes, count, total, free)
