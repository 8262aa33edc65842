"""Positions in a rule file, for error messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from pilotage.base import errors, toml


class SourceSpan(msgspec.Struct, frozen=True):
    """A table of a rule file: a rule or a recipe."""

    #: The file of the rule file, or its name.
    file: str
    #: The text of a TOML rule file, in which lines are looked up.
    source: str = ""
    #: The keys that lead to the table, such as `rule` and `clean`.
    path: tuple[str, ...] = ()
    #: The line, where it is known without looking.
    line: int | None = None

    def line_of(self, *keys: str) -> int | None:
        """Return the line of a key of the table."""
        return self.line or toml.line_of(self.source, (*self.path, *keys))


@contextmanager
def key(*keys: str) -> Iterator[None]:
    """Name the key that is being read in errors that come out of it."""
    try:
        yield
    except errors.BadRule as error:
        if not error.file:
            error.at = ".".join((*keys, error.at) if error.at else keys)
        raise
    except errors.UsageError as error:
        raise errors.BadRule(error.message, hint=error.hint, at=".".join(keys)) from None


@contextmanager
def table(place: SourceSpan, elsewhere: dict[str, SourceSpan] | None = None) -> Iterator[None]:
    """Name the file, line and table in errors; some keys may have come from elsewhere."""
    try:
        yield
    except errors.BadRule as error:
        if not error.file:
            keys = error.at.split(".") if error.at else []
            there = (elsewhere or {}).get(keys[0], place) if keys else place
            error.file = there.file
            error.line = there.line_of(*keys)
            error.at = ".".join((*there.path, *keys))
            if there is not place:
                error.message += f" (as {'.'.join(place.path)} uses it)"
        raise
