"""Listings that are known to be whole, and calling off what may be over already.

Some tools say nothing where there is nothing, and some end with an error for a job that is no
more. A line of shell around them makes both plain; it is the same for every call, and what differs
are its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import words
from .model import BatchError, Call, Said

_END = "end of listing"
#: The last line comes only if the tool succeeded. No site's language or time zone is in the way.
_LIST = f'export LC_ALL=C TZ=UTC0; "$@" && echo && echo "{_END}"'
#: What a tool complains of counts only where it is none of what the first argument describes.
_CANCEL = """\
export LC_ALL=C
fine=$1; shift
said=$("$@" 2>&1) && exit 0
code=$?
printf '%s\\n' "$said" >&2
[ -n "$said" ] && ! printf '%s\\n' "$said" | grep -Eqv "$fine" && exit 0
exit "$code"
"""


def asked(*argv: str) -> Call:
    """Return the call of a tool that lists, for `body` to read."""
    return Call(("sh", "-c", _LIST, "sh", *argv))


def body(said: Said, tool: str) -> str:
    """Return what a tool said that `asked` ran; raise unless it is all of it."""
    if said.exit != 0:
        raise BatchError(f"{tool}: {words.complaint(said)}")
    text, end, rest = said.out.removesuffix("\n").rpartition(f"\n{_END}")
    if not end or rest:
        raise BatchError(f"{tool}: the listing ends with {said.out[-100:]!r}")
    return text


def called_off(argv: Sequence[str], ids: Sequence[str], *, name: str, fine: str) -> Call:
    """Return the call of a tool that calls jobs off, in peace with those that are over.

    Each id must be what the pattern `name` says; what the tool complains of is no failure if each
    line of it has the pattern `fine`, which is one of `grep -E`.
    """
    if not ids:
        raise BatchError("no job to call off", final=True)
    for one in ids:
        if not re.fullmatch(name, one, re.ASCII):
            raise BatchError(f"{one!r} is no id of a job", final=True)
    return Call(("sh", "-c", _CANCEL, "sh", f"{fine}|^$", *argv, *ids))
