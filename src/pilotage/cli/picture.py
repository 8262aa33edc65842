"""`pilotage rule graph`, and output options of all commands that draw."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from pilotage.base import errors
from pilotage.cli.answer import Answer
from pilotage.cli.common import HERE, Common

if TYPE_CHECKING:
    from pilotage.draw.graph import Graph


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Form:
    """How a graph is drawn, and where to."""

    svg: Annotated[bool, Parameter(help="As a picture.")] = False
    mermaid: Annotated[bool, Parameter(help="As Mermaid.")] = False
    text: Annotated[bool, Parameter(help="As text; this is the default.")] = False
    output: Annotated[
        Path | None,
        Parameter(name=("--output", "--out", "-o"), help="Write it into this file."),
    ] = None

    def __post_init__(self) -> None:
        """Refuse two forms at once."""
        if self.svg + self.mermaid + self.text > 1:
            raise errors.UsageError("give one of `--svg`, `--mermaid` and `--text`")

    def draw(self, found: Graph, title: str, data: Any, notes: tuple[str, ...] = ()) -> Answer:  # noqa: ANN401 - any JSON value
        """Draw a graph; without a form, the ending of the file's name says which."""
        drawn = self._written(found, title)
        if self.output is None:
            return Answer(data, raw=drawn.encode("utf-8", "surrogateescape"), notes=notes)
        save(self.output, drawn)
        return Answer(data, (f"wrote {self.output}",), (str(self.output),), notes)

    def _written(self, found: Graph, title: str) -> str:
        from pilotage.draw import graph as graphs

        ending = self.output.suffix if self.output and not self.text else ""
        if self.svg or (ending == ".svg" and not self.mermaid):
            return graphs.as_svg(found, title).svg
        if self.mermaid or ending in {".mmd", ".md"}:
            return graphs.as_mermaid(found)
        return graphs.as_text(found)


_TEXT = Form()


def graph(*, form: Form = _TEXT, at: Common = HERE) -> Answer:
    """Draw which rules fire after which."""
    from pilotage.rule import graph as graphs

    with at.open() as project:
        loaded = project.read_books()
        found = graphs.graph(loaded.rules.values(), str(project.root))
        name = project.root.name
    data = {
        "nodes": [
            {"id": node.id, "label": node.label, "sub": node.sub, "kind": node.kind}
            for node in found.nodes
        ],
        "edges": msgspec.to_builtins(found.edges),
    }
    return form.draw(found, name, data, tuple(str(error) for error in loaded.failed.values()))


def save(file: Path, words: str) -> None:
    """Write text to a file that a person named."""
    try:
        file.write_text(words, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        message = f"cannot write `{file}`: {error.strerror}"
        raise errors.StoreUnavailable(message, hint="choose another place") from error
