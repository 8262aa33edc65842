"""Orders for Flux, and what its tools say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from pilotage.batch.system import whole, words
from pilotage.batch.system.model import BatchError, Call, Item, Order, Said

from . import listing, options

_LETTERS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
#: Ids are numbers in base 58, with a letter before that a plain locale writes as `f`.
_ANSWER = re.compile(rf"[ƒf](?P<id>[{_LETTERS}]{{1,11}})|(?P<number>[1-9][0-9]{{0,19}})")
_ID = r"[1-9][0-9]*"
_FINE = "inactive|[Uu]nknown job|not found|No such"
#: The same order is refused for ever; each is said by Flux itself.
_FINAL = re.compile(
    r"""invalid|unsatisfiable|unrecognized|unknown|not\ (allowed|permitted|configured)|exceeds
    |no\ queues?|does\ not\ exist|must\ be|expected|rejected""",
    re.VERBOSE | re.IGNORECASE,
)
#: Passes by itself, whatever else is said beside it.
_PASSING = re.compile(
    r"unable to connect|connection|timed out|submission is disabled|max(imum)?.*(jobs|limit)"
    r"|temporar|broken pipe|host is down|ENOSYS|not implemented",
    re.IGNORECASE,
)


class Flux:
    """Flux by its commands.

    It has no arrays, and does not know memory: an order's is not kept. The text of an order's
    script must be in its folder before, as `script.sh`.
    """

    name: ClassVar[str] = "flux"
    arrays: ClassVar[bool] = False

    def submit(self, order: Order) -> Call:
        """Run the script on one node by itself, on several in an instance of Flux."""
        words.check(order)
        return Call(options.submit(order))

    def submitted(self, said: Said) -> str:
        """Read the id, as the number that listings have."""
        found = _ANSWER.fullmatch(said.out.strip())
        if said.exit != 0:
            # An id beside an error says that it was accepted, whatever the error says.
            final = not found and bool(_FINAL.search(said.err)) and not _PASSING.search(said.err)
            raise BatchError(f"flux: {words.complaint(said)}", final=final)
        if found is None:
            raise BatchError(f"flux gave no id but {said.out[:200]!r}")
        return found["number"] or str(_number(found["id"]))

    def listing(self) -> Call:
        """Ask `flux jobs` for all that is there, and what ended within the hour."""
        return listing.LIVE

    def listed(self, said: Said) -> list[Item]:
        """Read what `flux jobs` said."""
        return listing.read(whole.body(said, "flux jobs"))

    def history(self, since: float) -> Call | None:
        """Ask `flux jobs` again, for a longer time."""
        return listing.past(since)

    def remembered(self, said: Said) -> list[Item]:
        """Read what `flux jobs` said."""
        return self.listed(said)

    def cancel(self, ids: Sequence[str]) -> Call:
        """Call jobs off; a job gets SIGTERM, and time to leave its evidence."""
        return whole.called_off(("flux", "cancel"), ids, name=_ID, fine=_FINE)

    def version(self) -> Call:
        """Ask for the versions."""
        return Call(("flux", "version"))


def _number(text: str) -> int:
    number = 0
    for letter in text:
        number = number * len(_LETTERS) + _LETTERS.index(letter)
    return number
