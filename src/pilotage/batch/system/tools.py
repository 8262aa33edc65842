"""A batch system as one value: its commands, and how to read what they print.

Some tools print nothing where there is nothing, and some fail for a job that is over already. A
fixed shell script around them makes both cases clear; what differs are its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from . import words
from .model import BatchCommand, BatchError, BatchItem, BatchOrder, Output, Windows

_END = "end of listing"
#: The last line comes only if the tool succeeded. Output is in English, and times are in UTC.
_LIST = f'export LC_ALL=C TZ=UTC0; "$@" && echo && echo "{_END}"'
#: An error of the tool counts unless each line of it matches the first argument.
_CANCEL = """\
export LC_ALL=C
gone=$1; shift
said=$("$@" 2>&1) && exit 0
code=$?
printf '%s\\n' "$said" >&2
[ -n "$said" ] && ! printf '%s\\n' "$said" | grep -Eqv "$gone" && exit 0
exit "$code"
"""
_NEVER = re.compile(r"(?!)")


def asked(*argv: str) -> BatchCommand:
    """Return the call of a tool whose whole output `body` can tell from a part of it."""
    return BatchCommand(("sh", "-c", _LIST, "sh", *argv))


def body(said: Output, tool: str) -> str:
    """Return the output of a tool that `asked` ran; raise unless it is all of it."""
    if said.exit != 0:
        raise BatchError(f"{tool}: {words.complaint(said)}")
    text, end, rest = said.out.removesuffix("\n").rpartition(f"\n{_END}")
    if not end or rest:
        raise BatchError(f"{tool}: the listing ends with {said.out[-100:]!r}")
    return text


def cancelled(
    argv: Sequence[str],
    ids: Sequence[str],
    *,
    pattern: str,
    gone: str = "",
    join: Callable[[Sequence[str]], Sequence[str]] = list,
) -> BatchCommand:
    """Return the call of a tool that cancels jobs.

    Each id must match `pattern`. If `gone` is given, which is a pattern of `grep -E`, the tool may
    fail as long as each line of what it says matches it: those jobs are over already.
    """
    if not ids:
        raise BatchError("no job to cancel", final=True)
    for one in ids:
        if not re.fullmatch(pattern, one, re.ASCII):
            raise BatchError(f"{one!r} is not the id of a job", final=True)
    if not gone:
        return BatchCommand((*argv, *join(ids)))
    return BatchCommand(("sh", "-c", _CANCEL, "sh", f"{gone}|^$", *argv, *join(ids)))


class ListCommand(msgspec.Struct, frozen=True):
    """A command that lists jobs, and how its output is read."""

    #: The tool, as errors name it.
    tool: str
    argv: tuple[str, ...]
    read: Callable[[str], list[BatchItem]]
    #: Whether a last line marks the output as whole; one JSON document needs none.
    marked: bool = True
    #: What the tool says, with an error, where no such list is kept.
    absent: str = ""

    def call(self) -> BatchCommand:
        """Return the command."""
        return asked(*self.argv) if self.marked else BatchCommand(self.argv)

    def items(self, said: Output) -> list[BatchItem]:
        """Read the output; raise unless it is whole."""
        if said.exit != 0:
            if self.absent and self.absent in said.err + said.out:
                return []
            raise BatchError(f"{self.tool}: {words.complaint(said)}")
        return self.read(body(said, self.tool) if self.marked else said.out)


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """A batch system that is used by its command-line tools; it is a `Batch`."""

    name: str
    arrays: bool = True
    #: The tool that submits, as errors name it.
    submitter: str
    #: Return the command for an order that has passed `words.check`.
    order: Callable[[BatchOrder], BatchCommand]
    #: All that the submitter prints if it took an order; the group `id` is the id.
    answer: re.Pattern[str]
    #: Turn the group `id` into the id that listings have.
    identify: Callable[[str], str] = str
    #: Errors of the submitter: the same order is always refused.
    final: re.Pattern[str]
    #: Errors of the submitter that pass, whatever else is said beside them.
    passing: re.Pattern[str] = _NEVER
    #: List the user's jobs, also those that ended lately if it can.
    live: ListCommand
    #: List what ended since then, if the system keeps that apart.
    past: Callable[[float], ListCommand] | None = None
    #: The command that cancels, without ids.
    canceller: tuple[str, ...]
    #: The pattern of ids that the canceller takes.
    ids: str
    #: What the canceller says of jobs that are over; empty if it succeeds for them.
    gone: str = ""
    #: Join ids, where one word can stand for many.
    join: Callable[[Sequence[str]], Sequence[str]] = list
    #: The command that shows the version.
    versions: tuple[str, ...]
    #: The command that shows a queue, whose name follows; it fails if there is none.
    queue: tuple[str, ...] = ()
    windows: Windows | None = None

    def submit(self, order: BatchOrder) -> BatchCommand:
        """Return the command for an order."""
        words.check(order)
        return self.order(order)

    def submitted(self, said: Output) -> str:
        """Read the id of a job or of an array."""
        found = self.answer.fullmatch(said.out.strip())
        if said.exit != 0:
            # An id beside an error says that it was accepted, whatever the error says.
            refused = found is None and self.final.search(said.err) is not None
            final = refused and self.passing.search(said.err) is None
            raise BatchError(f"{self.submitter}: {words.complaint(said)}", final=final)
        if found is None:
            raise BatchError(f"{self.submitter} returned no id but {said.out[:200]!r}")
        return self.identify(found["id"])

    def listing(self) -> BatchCommand:
        """Return the command that lists all jobs of this user."""
        return self.live.call()

    def listed(self, said: Output) -> list[BatchItem]:
        """Read a listing."""
        return self.live.items(said)

    def history(self, since: float) -> BatchCommand | None:
        """Return the command that lists what ended since then, if there is one."""
        return None if self.past is None else self.past(since).call()

    def remembered(self, said: Output) -> list[BatchItem]:
        """Read a history."""
        return [] if self.past is None else self.past(0.0).items(said)

    def cancel(self, ids: Sequence[str]) -> BatchCommand:
        """Return the command that cancels jobs."""
        return cancelled(self.canceller, ids, pattern=self.ids, gone=self.gone, join=self.join)

    def version(self) -> BatchCommand:
        """Return the command that shows whether the tools are there, and which they are."""
        return BatchCommand(self.versions)
