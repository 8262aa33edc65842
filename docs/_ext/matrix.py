"""What runs where: the table that `tests/acceptance/test_matrix.py` keeps honest.

    make soak NAME=seconds
    python -m docs._ext.matrix

measures how long each cell takes, and puts that into the table.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

_FOLDER = Path(__file__).parents[2] / "tests" / "acceptance"
TABLE = _FOLDER / "matrix.toml"
#: By source and place, the median of the seconds from asking to output home.
SECONDS = _FOLDER / "matrix.json"
#: Where a run leaves what it measured, a file for each place.
MEASURED = Path(__file__).parents[2] / "build" / "matrix"


class Missing(NamedTuple):
    """Why a cell does not work."""

    #: Whether it is refused when asked for, or waits and says why.
    how: Literal["refused", "waits"]
    #: What is in the words that the user is told.
    says: str
    why: str


class Matrix(NamedTuple):
    """All cells, as source and place."""

    #: By name, what the page calls it.
    sources: dict[str, str]
    places: dict[str, str]
    missing: dict[tuple[str, str], Missing]
    #: By cell, what it lacks, and why.
    lacking: dict[tuple[str, str], dict[str, str]]
    seconds: dict[str, dict[str, float]]


def read() -> Matrix:
    """Read the table."""
    found = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    lacking: dict[tuple[str, str], dict[str, str]] = {}
    for one in found.get("lacking", ()):
        for cell in _cells(one):
            lacking.setdefault(cell, {})[one["what"]] = one["why"]
    return Matrix(
        found["sources"], found["places"],
        {
            cell: Missing(one["how"], one["says"], one["why"])
            for one in found.get("missing", ())
            for cell in _cells(one)
        },
        lacking, json.loads(SECONDS.read_text(encoding="utf-8")) if SECONDS.exists() else {},
    )  # fmt: skip


def _cells(one: dict[str, Any]) -> Iterable[tuple[str, str]]:
    return ((source, place) for source in one["sources"] for place in one["places"])


def page() -> str:
    """Write the table of cells, with notes below it."""
    matrix = read()
    notes: dict[str, int] = {}

    def note(why: str) -> str:
        return f"({notes.setdefault(why, len(notes) + 1)})"

    def cell(source: str, place: str) -> str:
        if gap := matrix.missing.get((source, place)):
            return f"no {note(gap.why)}"
        measured = matrix.seconds.get(source, {}).get(place)
        shown = "yes" if measured is None else f"{measured:.2f} s"
        return " ".join([shown, *map(note, matrix.lacking.get((source, place), {}).values())])

    rows = [
        ("from \N{DOWNWARDS ARROW}, to \N{RIGHTWARDS ARROW}", *matrix.places.values()),
        ["---"] * (len(matrix.places) + 1),
        *(
            (title, *(cell(source, place) for place in matrix.places))
            for source, title in matrix.sources.items()
        ),
    ]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(
        [*lines, "", *(f"{number}. {why[:1].upper()}{why[1:]}." for why, number in notes.items())]
    )


def _update() -> None:
    """Put what was measured into the table; what was not stays as it is."""
    seconds = read().seconds
    for file in MEASURED.glob("*.json"):
        for source, value in json.loads(file.read_text(encoding="utf-8")).items():
            seconds.setdefault(source, {})[file.stem] = round(value, 2)
    SECONDS.write_text(json.dumps(seconds, indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _update()
