"""Orders for LSF, and what its tools say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from pilotage.batch.system import whole, words
from pilotage.batch.system.model import BatchError, Call, Item, Order, Said

from . import listing, options

#: Other lines may come before: `Cannot connect to LSF. Please wait ...`
_ANSWER = re.compile(r"^Job <(?P<id>[1-9][0-9]*)> is submitted to ", re.MULTILINE | re.ASCII)
_ID = r"[1-9][0-9]*(\[[1-9][0-9]*\])?"
_FINE = "already finished|No matching job|is not found|is being terminated|No unfinished job"
#: The same order is refused for ever; each is said by LSF itself.
_FINAL = re.compile(
    r"""no\ such\ |bad\ |illegal|unknown|invalid|cannot\ use\ (the\ )?queue|not\ permitted|undefined
    |too\ (many|few|large)|exceeds|request\ aborted\ by\ esub|is\ not\ a\ (valid|legal)|cannot\ run
    |user\ permission\ denied|not\ defined""",
    re.VERBOSE | re.IGNORECASE,
)
#: Passes by itself, whatever else is said beside it.
_PASSING = re.compile(
    r"cannot connect|is down|not responding|try later|retrying|busy|threshold|timed out"
    r"|communication|failed in an lsf library|closed|license|limit (is|has been) reached",
    re.IGNORECASE,
)


class LSF:
    """LSF by its commands."""

    name: ClassVar[str] = "lsf"
    arrays: ClassVar[bool] = True

    def submit(self, order: Order) -> Call:
        """Have `bsub` read the script."""
        words.check(order)
        return Call(("bsub", *options.batch(order)), input=order.script)

    def submitted(self, said: Said) -> str:
        """Read the number of the job or of the array."""
        found = _ANSWER.search(said.out)
        if said.exit != 0:
            # An id beside an error says that it was accepted, whatever the error says.
            final = not found and bool(_FINAL.search(said.err)) and not _PASSING.search(said.err)
            raise BatchError(f"bsub: {words.complaint(said)}", final=final)
        if found is None:
            raise BatchError(f"bsub gave no id but {said.out[:200]!r}")
        return found["id"]

    def listing(self) -> Call:
        """Ask `bjobs`, also for those that ended within the hour or what the site keeps."""
        return listing.BJOBS

    def listed(self, said: Said) -> list[Item]:
        """Read what `bjobs` said."""
        return listing.read(whole.body(said, "bjobs"))

    def history(self, since: float) -> Call | None:  # noqa: ARG002
        """Ask for nothing: what ended is in the listing, and `bhist` reads whole logs."""
        return None

    def remembered(self, said: Said) -> list[Item]:
        """Read what `bjobs` said."""
        return self.listed(said)

    def cancel(self, ids: Sequence[str]) -> Call:
        """Call jobs off; a job gets SIGINT and SIGTERM, and time to leave its evidence."""
        return whole.called_off(("bkill",), ids, name=_ID, fine=_FINE)

    def version(self) -> Call:
        """Ask for the version, which is said as an error."""
        return Call(("sh", "-c", "exec bsub -V 2>&1"))
