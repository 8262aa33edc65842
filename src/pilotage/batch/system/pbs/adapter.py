"""Orders for PBS, and what its tools say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from pilotage.batch.system import whole, words
from pilotage.batch.system.model import BatchError, Call, Item, Order, Said

from . import listing, options

#: `12.server`, or `12[].server` of an array.
_ANSWER = re.compile(r"(?P<id>[1-9][0-9]*(\[\])?\.[\w.-]+)", re.ASCII)
_ID = r"[1-9][0-9]*(\[[0-9]*\])?(\.[A-Za-z0-9_.-]+)?"
_FINE = "[Uu]nknown [Jj]ob [Ii]d|has finished|invalid for state of job|Job is being deleted"
#: The same order is refused for ever; each is said by PBS itself.
_FINAL = re.compile(
    r"""unknown\ queue|illegal|invalid|unknown\ resource|not\ authorized|unauthorized|access\ denied
    |bad\ (uid|gid|attribute)|exceeds\ (queue|resource|server)|violates\ queue|unknown\ node
    |usage:|no\ such\ |cannot\ satisfy|bad\ value|must\ be""",
    re.VERBOSE | re.IGNORECASE,
)
#: Passes by itself, whatever else is said beside it.
_PASSING = re.compile(
    r"connect|timeout|timed out|no permission to submit at|not enabled|is not started|would exceed"
    r"|maximum number of jobs|job limit|try again|temporar|cred",
    re.IGNORECASE,
)


class PBS:
    """PBS by its commands; which of its kinds a site has is found out there, at each call."""

    name: ClassVar[str] = "pbs"
    arrays: ClassVar[bool] = True

    def submit(self, order: Order) -> Call:
        """Have `qsub` read the script."""
        words.check(order)
        return Call(options.submit(order), input=options.script(order))

    def submitted(self, said: Said) -> str:
        """Read the id of the job or of the array."""
        found = _ANSWER.fullmatch(said.out.strip())
        if said.exit != 0:
            # An id beside an error says that it was accepted, whatever the error says.
            final = not found and bool(_FINAL.search(said.err)) and not _PASSING.search(said.err)
            raise BatchError(f"qsub: {words.complaint(said)}", final=final)
        if found is None:
            raise BatchError(f"qsub gave no id but {said.out[:200]!r}")
        return found["id"]

    def listing(self) -> Call:
        """Ask `qselect` whose they are, and `qstat` how they are."""
        return listing.LIVE

    def listed(self, said: Said) -> list[Item]:
        """Read what `qstat` said."""
        return listing.read(whole.body(said, "qstat"))

    def history(self, since: float) -> Call | None:
        """Ask for what is over; Torque keeps that in the listing, for a while."""
        return listing.past(since)

    def remembered(self, said: Said) -> list[Item]:
        """Read what `qstat` said."""
        return listing.read(whole.body(said, "qstat"))

    def cancel(self, ids: Sequence[str]) -> Call:
        """Call jobs off; a job gets SIGTERM, and time to leave its evidence."""
        return whole.called_off(("qdel",), ids, name=_ID, fine=_FINE)

    def version(self) -> Call:
        """Ask for the version, which some of them say as an error."""
        return Call(("sh", "-c", "exec qstat --version 2>&1"))
