"""What a caller wants done becomes the definition of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from pilotage import errors
from pilotage.client import function, options
from pilotage.client.options import Options
from pilotage.job.model import JobSpec

#: What can be submitted: a function, a program with its arguments, or a definition.
Work = Callable[..., Any] | Sequence[str] | JobSpec
_MOST = 1000


class Definitions:
    """The definitions of functions as JSON; each function is looked at once."""

    def __init__(self, options_: Options) -> None:
        """Know none yet."""
        self._options = options_
        self._known: dict[int, tuple[object, bytes]] = {}

    def of_function(self, work: Callable[..., Any]) -> bytes:
        """Write the definition of the calls of a function."""
        found = self._known.get(id(work))
        if found is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            recipe = function.recipe(work)
            spec = self._options.spec(recipe, recipe.function)
            # The function is held too, so that its number is not given to another.
            found = self._known[id(work)] = (work, msgspec.json.encode(spec))
        return found[1]


def of_job(
    work: Sequence[str] | JobSpec, wanted: Options, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bytes:
    """Write the definition of a job that is no call."""
    if args or kwargs:
        message = "only functions take arguments"
        raise errors.UsageError(message, hint="a command is one list of text")
    if isinstance(work, JobSpec):
        return msgspec.json.encode(work)
    if isinstance(work, str):
        message = "a command is a list of text, not one text"
        raise errors.UsageError(message, hint="there is no shell: use [program, argument, …]")
    return msgspec.json.encode(wanted.spec(options.command(work), work[0].rpartition("/")[2]))
