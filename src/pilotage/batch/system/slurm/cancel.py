"""Ids for `scancel`, those of one array as one word: one message to the controller for each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pilotage.batch.system.model import BatchError

_ID = re.compile(r"(?P<job>[1-9][0-9]*)(_(?P<index>[0-9]+))?", re.ASCII)


def joined(ids: Sequence[str]) -> list[str]:
    """Return the words; raise for what is no id, as `scancel` might take it for a filter."""
    arrays: dict[str, list[int]] = {}
    whole: list[str] = []
    for name in ids:
        found = _ID.fullmatch(name)
        if found is None:
            raise BatchError(f"{name!r} is no id of a job", final=True)
        if found["index"] is None:
            whole.append(name)
        else:
            arrays.setdefault(found["job"], []).append(int(found["index"]))
    if not ids:
        raise BatchError("no job to call off", final=True)
    return whole + [_word(job, indices) for job, indices in arrays.items()]


def _word(job: str, indices: Iterable[int]) -> str:
    numbers = sorted(set(indices))
    if len(numbers) == 1:
        return f"{job}_{numbers[0]}"
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    texts = (str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return f"{job}_[{','.join(texts)}]"
