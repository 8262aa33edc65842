"""Orders for Grid Engine, and what its tools say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from pilotage.batch.system import whole, words
from pilotage.batch.system.model import BatchError, Call, Item, Order, Said

from . import accounting, listing, options

#: `12`, or `12.1-5:1` of an array.
_ANSWER = re.compile(r"(?P<id>[1-9][0-9]*)(\.[0-9]+-[0-9]+:[0-9]+)?", re.ASCII)
_ID = r"[1-9][0-9]*(\.[1-9][0-9]*)?"
_FINE = "does not exist|already in deletion|has registered|has deleted|invalid task"
#: The same order is refused for ever; each is said by Grid Engine itself.
_FINAL = re.compile(
    r"""rejected|unknown\ resource|is\ invalid|invalid\ option|not\ a\ valid\ object\ name
    |is\ not\ a\ (time|memory|integer|double|boolean)|can't\ resolve\ hostname|denied:
    |no\ such\ |unknown\ option|no\ suitable\ queues|must\ be""",
    re.VERBOSE | re.IGNORECASE,
)
#: Passes by itself, whatever else is said beside it.
_PASSING = re.compile(
    r"send error|select error|commlib|answer list|timeout|would exceed|allowed to have"
    r"|quota|limit of|too many|no free slots",
    re.IGNORECASE,
)


class GridEngine:
    """Grid Engine by its commands.

    Only the signal that a job ended by tells that it was called off; one that was called off while
    it waited leaves no trace.
    """

    name: ClassVar[str] = "gridengine"
    arrays: ClassVar[bool] = True

    def submit(self, order: Order) -> Call:
        """Have `qsub` read the script."""
        words.check(order)
        return Call(("qsub", *options.batch(order)), input=options.script(order))

    def submitted(self, said: Said) -> str:
        """Read the number of the job or of the array."""
        found = _ANSWER.fullmatch(said.out.strip())
        if said.exit != 0:
            # An id beside an error says that it was accepted, whatever the error says.
            final = not found and bool(_FINAL.search(said.err)) and not _PASSING.search(said.err)
            raise BatchError(f"qsub: {words.complaint(said)}", final=final)
        if found is None:
            raise BatchError(f"qsub gave no id but {said.out[:200]!r}")
        return found["id"]

    def listing(self) -> Call:
        """Ask `qstat` for what waits, runs or is suspended."""
        return listing.QSTAT

    def listed(self, said: Said) -> list[Item]:
        """Read what `qstat` said."""
        return listing.read(whole.body(said, "qstat"))

    def history(self, since: float) -> Call | None:
        """Ask `qacct`."""
        return accounting.asked(since)

    def remembered(self, said: Said) -> list[Item]:
        """Read what `qacct` said."""
        return accounting.read(whole.body(said, "qacct"))

    def cancel(self, ids: Sequence[str]) -> Call:
        """Call jobs off; a job gets SIGUSR2, and time to leave its evidence."""
        return whole.called_off(("qdel",), ids, name=_ID, fine=_FINE)

    def version(self) -> Call:
        """Ask for the version, which is the first line of the help."""
        return Call(("qstat", "-help"))
