"""Reports as one HTML file: no script, no other file, fit for screen and paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2
import msgspec
from markupsafe import Markup

from pilotage.base import durable, text
from pilotage.draw.svg import FAILED, Picture


class Fact(msgspec.Struct, frozen=True):
    """A figure at the top of a page; its kind is the state that colours it."""

    name: str
    value: str
    kind: str = ""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A picture with what its colours mean."""

    head: str
    picture: Picture
    caption: str = ""
    legend: Mapping[str, str] = {}
    #: Whether it is as wide as the page; else as wide as it is drawn, if there is room.
    stretch: bool = False


class FailureEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A failure and its reason."""

    name: str
    state: str
    #: Where, which attempt, or what caused it.
    note: str = ""
    reason: str = ""
    #: The last lines that it wrote.
    output: str = ""


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """Failures in full."""

    head: str
    failures: Sequence[FailureEntry]
    note: str = ""


class Column(msgspec.Struct, frozen=True):
    """A column of a table; numbers are right-aligned."""

    title: str
    number: bool = False


class Cell(msgspec.Struct, frozen=True):
    """A cell that is not broken into lines, with a state that colours it and a note beside it."""

    value: str
    kind: str = ""
    note: str = ""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table; one without titles has no head row."""

    head: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str | Cell]]
    note: str = ""
    #: Whether it is only as wide as its text.
    narrow: bool = False
    #: If it is folded, the line that unfolds it.
    fold: str = ""


class Image(msgspec.Struct, frozen=True):
    """An image inside the page, as a `data:` address, and its name."""

    data: str
    name: str


class Gallery(msgspec.Struct, frozen=True, kw_only=True):
    """Images beside each other."""

    head: str
    images: Sequence[Image]
    note: str = ""


Section = Figure | Failures | Table | Gallery


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a report, from top to bottom."""

    title: str
    #: When and where, in a line; what it is about; and why it ended like this.
    lead: str
    about: str = ""
    reason: Cell | None = None
    facts: Sequence[Fact] = ()
    sections: Sequence[Section] = ()
    foot: str = ""
    #: Trusted HTML of the caller that stands before it.
    before: str = ""


def legend(colours: Mapping[str, str], *, failed: bool) -> dict[str, str]:
    """Return the legend of a timeline; none for more than a dozen colours."""
    shown = dict(colours) if len(colours) <= 12 else {}
    return shown | {"failed": FAILED} if failed else shown


def count(number: int) -> Markup:
    """Write a number with a narrow space before each three digits."""
    return Markup(f"{number:,}".replace(",", "&#8239;"))  # noqa: S704 - digits only


def render(page: Page) -> str:
    """Return the HTML of a page."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pilotage.draw", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
    )
    sections = [(type(one).__name__.lower(), one) for one in page.sections]
    return environment.get_template("page.html").render(page=page, sections=sections)


def write(page: Page, out: Path) -> None:
    """Write a page to a file, complete or not at all."""
    durable.swap(out, render(page).encode(errors="backslashreplace"), exact=0o644)


def _printable(value: object) -> object:
    """Escape what cannot be shown in text; what is markup already was made from such text."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "\n".join(text.show(line) for line in value.split("\n"))
