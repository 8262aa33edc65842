"""Where jobs run or ran, read from the holder of an attempt."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import msgspec

from pilotage.base import text
from pilotage.match.place import SITE
from pilotage.store import Db

_PILOT, _FLOW, _HUB = "pilot:", "flow:", "hub:"
_LOCAL = "local"


class JobPlace(msgspec.Struct, frozen=True):
    """A place, and the site where it is."""

    #: This machine, a pilot, the batch queue of a site, a site with an agent; or another hub.
    kind: Literal["local", "pilot", "batch", "agent", "hub"]
    site: str
    #: The number of the pilot.
    pilot: int | None = None


def places(db: Db, jobs: Collection[int]) -> dict[int, JobPlace]:
    """Read where jobs run or ran last; those that never began, and workflows, are nowhere."""
    if not jobs:
        return {}
    found = {}
    for job, mark, site, way in db.rows("job_places", ids=text.dump(list(jobs))):
        place = _place(mark, site or "", way or "")
        if place is not None:
            found[job] = place
    return found


def _place(mark: str, pilot_site: str, way: str) -> JobPlace | None:
    if mark.startswith(_FLOW):
        return None
    if mark.startswith(SITE):
        return JobPlace("agent" if way == "agent" else "batch", mark.removeprefix(SITE))
    if mark.startswith(_HUB):
        return JobPlace("hub", "")
    number = mark.removeprefix(_PILOT)
    if number != mark and number.isdecimal() and int(number):
        return JobPlace("pilot", pilot_site, int(number))
    return JobPlace("local", _LOCAL)
