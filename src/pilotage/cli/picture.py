"""`pilotage rule graph`: the workflow that follows from the rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from pilotage import errors
from pilotage.cli.answer import Answer
from pilotage.cli.common import HERE, Common
from pilotage.rule import graph as graphs
from pilotage.rule.graph import Graph


def graph(
    *,
    svg: Annotated[bool, Parameter(help="As a picture.")] = False,
    mermaid: Annotated[bool, Parameter(help="As Mermaid.")] = False,
    text: Annotated[bool, Parameter(help="As text; this is the default.")] = False,
    output: Annotated[
        Path | None, Parameter(name=("--output", "-o"), help="Write it into this file.")
    ] = None,
    at: Common = HERE,
) -> Answer:
    """Draw which rules lead to which."""
    if svg + mermaid + text > 1:
        raise errors.UsageError("give one of `--svg`, `--mermaid` and `--text`")
    with at.open() as project:
        loaded = project.read_books()
        found = graphs.graph(loaded.rules.values(), str(project.root))
        name = project.root.name
    if output is not None and not (svg or mermaid or text):
        svg, mermaid = output.suffix == ".svg", output.suffix in {".mmd", ".md"}
    drawn = _draw(found, name, svg=svg, mermaid=mermaid)
    notes = tuple(str(error) for error in loaded.failed.values())
    data = msgspec.to_builtins(found)
    if output is None:
        return Answer(data, raw=drawn.encode("utf-8", "surrogateescape"), notes=notes)
    try:
        output.write_text(drawn, encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        message = f"cannot write `{output}`: {error.strerror}"
        raise errors.StoreUnavailable(message, hint="choose another place") from error
    return Answer(data, (f"wrote {output}",), (str(output),), notes)


def _draw(found: Graph, name: str, *, svg: bool, mermaid: bool) -> str:
    if svg:
        return graphs.as_svg(found, name)
    return graphs.as_mermaid(found) if mermaid else graphs.as_text(found)
