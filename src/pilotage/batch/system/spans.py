"""Numbers of jobs in an array, as schedulers write many of them in one word."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SPAN = re.compile(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+))?)?", re.ASCII)
#: No array is larger than what any scheduler takes.
_MOST = 10_000_000


def expand(text: str) -> Iterator[int]:
    """Return the numbers of `1,4-6,10-20:2`; raise `ValueError` for what is none."""
    for span in text.split(","):
        found = _SPAN.fullmatch(span.strip())
        if found is None:
            raise ValueError(text)
        first, last, step = found.groups()
        if int(last or first) > _MOST or step == "0":
            raise ValueError(text)
        yield from range(int(first), int(last or first) + 1, int(step or 1))
