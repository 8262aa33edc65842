"""Orders for HTCondor, and what its tools say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from pilotage.batch.system import whole, words
from pilotage.batch.system.model import BatchError, Call, Item, Order, Said

from . import ads, description

#: `12.0 - 12.4`
_ANSWER = re.compile(r"(?P<id>[1-9][0-9]*)\.[0-9]+ - (?P=id)\.[0-9]+", re.ASCII)
_ID = r"[1-9][0-9]*(\.[0-9]+)?"
_FINE = "not found|marked for removal|already|couldn't find|no result found"
#: The same order is refused for ever; each is said by HTCondor itself.
_FINAL = re.compile(
    r"""parse\ error|invalid|no\ such\ directory|does\ not\ exist|is\ not\ (a\ )?valid
    |submit_requirement|no\ machine_count|illegal|bad\ |must\ (be|not)|unknown\ universe
    |not\ a\ valid\ attribute|failed\ to\ parse|expects?\ a""",
    re.VERBOSE | re.IGNORECASE,
)
#: Passes by itself, whatever else is said beside it.
_PASSING = re.compile(
    r"connect|authenticat|timed? ?out|would exceed|max_jobs|secman|can't find address",
    re.IGNORECASE,
)


class HTCondor:
    """HTCondor by its commands.

    The text of an order's script must be in its folder before, as `script.sh`: login and worker
    nodes share that folder, so that nothing is transferred. Every job of an array learns its number
    from `PILOTAGE_INDEX`.
    """

    name: ClassVar[str] = "htcondor"
    arrays: ClassVar[bool] = True

    def submit(self, order: Order) -> Call:
        """Have `condor_submit` read a description."""
        words.check(order)
        return Call(("condor_submit", "-terse", "-"), input=description.write(order))

    def submitted(self, said: Said) -> str:
        """Read the number of the cluster."""
        found = _ANSWER.fullmatch(said.out.strip())
        if said.exit != 0:
            # An id beside an error says that it was accepted, whatever the error says.
            final = not found and bool(_FINAL.search(said.err)) and not _PASSING.search(said.err)
            raise BatchError(f"condor_submit: {words.complaint(said)}", final=final)
        if found is None:
            raise BatchError(f"condor_submit gave no id but {said.out[:200]!r}")
        return found["id"]

    def listing(self) -> Call:
        """Ask `condor_q`, which says nothing at all if there is nothing."""
        return whole.asked("condor_q", *ads.WANTED, "-constraint", ads.OURS)

    def listed(self, said: Said) -> list[Item]:
        """Read what is in the queue."""
        text = whole.body(said, "condor_q")
        return [ads.item(ad) for ad in ads.read(text or "[]")]

    def history(self, since: float) -> Call | None:
        """Ask `condor_history`, which reads backwards and stops in time."""
        return whole.asked("condor_history", *ads.WANTED, *ads.between(since))

    def remembered(self, said: Said) -> list[Item]:
        """Read what has left the queue."""
        return [ads.item(ad, gone=True) for ad in ads.read(whole.body(said, "condor_history"))]

    def cancel(self, ids: Sequence[str]) -> Call:
        """Call jobs off; a job gets SIGTERM, and time to leave its evidence."""
        return whole.called_off(("condor_rm",), ids, name=_ID, fine=_FINE)

    def version(self) -> Call:
        """Ask for the version, which needs no daemon."""
        return Call(("condor_version",))
