"""Places for which nothing was found: they are not searched again before something has changed."""

from __future__ import annotations

from collections.abc import Callable

from pilotage.match.bucket import Bucket
from pilotage.match.place import Place
from pilotage.match.view import View


def note(place: Place, view: View, ahead: int) -> None:
    """Remember that all buckets of a class were looked at, and none may start at a place."""
    place.barren = (view, view.version, _room(place, ahead))


def still(place: Place, view: View, allowed: Callable[[Bucket], bool], ahead: int) -> bool:
    """Say whether nothing that is new may start where nothing was found before."""
    if place.barren is None or place.barren[0] is not view:
        return False
    room, before = _room(place, ahead), place.barren[2]
    if any(have > had for have, had in zip(room, before, strict=True)):
        return False
    news = view.news(place.barren[1])
    if news is None or any(bucket and allowed(bucket) for bucket in news):
        return False
    if news:
        # These were looked at with the room there is now, however much there was before.
        place.barren = (view, view.version, room)
    return True


def _room(place: Place, ahead: int) -> tuple[int, ...]:
    free = place.free_cpus
    return free, free + ahead, place.free_memory, place.free_gpus, place.free_disk
