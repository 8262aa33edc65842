"""Whether a line of cron is one: minute, hour, day of month, month, day of week."""

from __future__ import annotations

import re

from pilotage import errors

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _DAYS),
)
_ITEM = re.compile(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d{1,4}))?", re.ASCII)


def check(line: str) -> None:
    """Complain of a line that no time can match or that cannot be read."""
    fields = line.split()
    if len(fields) != len(_FIELDS):
        raise errors.BadRule(
            f"{line!r} has {len(fields)} fields; cron has five",
            hint="write minute, hour, day of month, month, day of week: `0 3 * * *`",
        )
    for text, (what, low, high, words) in zip(fields, _FIELDS, strict=True):
        for item in text.split(","):
            _check_item(item, what, (low, high), words)


def _check_item(item: str, what: str, bounds: tuple[int, int], words: tuple[str, ...]) -> None:
    found = _ITEM.fullmatch(item)
    if not found:
        raise errors.BadRule(f"cannot read {item!r} as the {what} of a cron line")
    ends = [_number(end, what, bounds, words) for end in found.group(2, 3) if end]
    if len(ends) == 2 and ends[0] > ends[1]:
        raise errors.BadRule(f"the {what} {item!r} of a cron line runs backwards")
    if found[4] is not None and int(found[4]) == 0:
        raise errors.BadRule(f"the {what} {item!r} of a cron line has step 0")


def _number(text: str, what: str, bounds: tuple[int, int], words: tuple[str, ...]) -> int:
    low, high = bounds
    if text.lower() in words:
        return words.index(text.lower()) + low
    if not text.isdecimal() or len(text) > 4 or not low <= int(text) <= high:
        raise errors.BadRule(f"{text!r} cannot be the {what}: it goes from {low} to {high}")
    return int(text)
