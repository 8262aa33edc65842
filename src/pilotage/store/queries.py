"""Named queries from the `.sql` files of this package."""

from __future__ import annotations

import functools
import re
from pathlib import Path

_HEAD = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@functools.cache
def load() -> dict[str, str]:
    """Read every query; the lines of comment under its name say what it is for."""
    found: dict[str, str] = {}
    for file in sorted(_folder(), key=lambda item: item[0]):
        if file[0][0].isdigit():
            continue
        parts = _HEAD.split(file[1])
        found.update(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))
    return found


@functools.cache
def migrations() -> tuple[tuple[int, str], ...]:
    """Read the numbered changes of the schema, in order."""
    return tuple(
        (int(name.split("_")[0]), text) for name, text in sorted(_folder()) if name[0].isdigit()
    )


def _folder() -> list[tuple[str, str]]:
    folder = Path(__file__).with_name("sql")
    return [(file.name, file.read_text(encoding="utf-8")) for file in folder.glob("*.sql")]
