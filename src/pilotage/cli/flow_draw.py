"""`pilotage flow graph`, `report` and `crate`: a workflow as a picture, a page and a crate."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from cyclopts import Parameter

from pilotage import __version__, errors
from pilotage.cli import flow, flow_submit, shape
from pilotage.cli.answer import Answer
from pilotage.cli.common import HERE, Common
from pilotage.flow import picture, sketch

_OUT = Parameter(name=("--output", "--out", "-o"), help="Write it there.")


def graph(
    name: Annotated[
        str, Parameter(name="FLOW", help="Number of a flow, `last`, a name, or a file.")
    ],
    /,
    *,
    svg: Annotated[bool, Parameter(help="As a picture.")] = False,
    mermaid: Annotated[bool, Parameter(help="As Mermaid.")] = False,
    text: Annotated[bool, Parameter(help="As text; this is the default.")] = False,
    output: Annotated[Path | None, _OUT] = None,
    param: flow_submit.Params = (),
    at: Common = HERE,
) -> Answer:
    """Draw the steps of a workflow with their states, or those of a file."""
    if svg + mermaid + text > 1:
        raise errors.UsageError("give one of `--svg`, `--mermaid` and `--text`")
    if output is not None and not (svg or mermaid or text):
        svg, mermaid = output.suffix == ".svg", output.suffix in {".mmd", ".md"}
    now = 0.0
    if flow_submit.is_file(name):
        asked = flow_submit.read(Path(name), flow_submit.params(param))
        title, steps = asked.name, picture.plan(asked)
    else:
        with at.open() as project:
            found = flow.seen(project, flow.number(project, name))
            now = project.clock.now()
        title, steps = f"{found.row.name}, flow {found.row.id}", found.steps
    drawn = picture.draw(steps)
    if svg:
        words = sketch.as_svg(drawn, title, now)
    else:
        words = sketch.as_mermaid(drawn, now) if mermaid else sketch.as_text(drawn, now)
    data = {"name": title, "graph": msgspec.to_builtins(drawn)}
    if output is None:
        return Answer(data, raw=words.encode("utf-8", "surrogateescape"))
    try:
        output.write_text(words, encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise _cannot(output, error) from error
    return Answer(data, (f"wrote {output}",), (str(output),))


def report(
    name: flow.One,
    /,
    *,
    output: Annotated[Path | None, _OUT] = None,
    title: Annotated[str, Parameter(help="Its title; else it has the flow's name.")] = "",
    at: Common = HERE,
) -> Answer:
    """Write how a workflow went as one HTML file that needs no other."""
    # It brings the template engine along, which no other command needs.
    from pilotage.flow import report as reports

    with at.open() as project:
        number = flow.number(project, name)
        page = reports.render(project.db, number, project.clock.now(), title)
    out = output or Path(f"flow-{number}.html")
    try:
        out.write_text(page, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise _cannot(out, error) from error
    return Answer({"flow": number, "path": str(out.absolute())}, (f"wrote {out}",), (str(out),))


def crate(
    name: flow.One,
    /,
    *,
    output: Annotated[
        Path | None,
        Parameter(name=("--output", "--out", "-o"), help="A folder, or a file that ends in .zip."),
    ] = None,
    data: Annotated[bool, Parameter(help="With all that the steps left, not only where.")] = False,
    license_: Annotated[
        str, Parameter(name="--license", help="Its licence: a URL or a sentence.")
    ] = "",
    at: Common = HERE,
) -> Answer:
    """Write a workflow with all of its provenance as an RO-Crate."""
    from pilotage.flow import crate_file

    with at.open() as project:
        number = flow.number(project, name)
        out = output or Path(f"flow-{number}-crate")
        count = crate_file.write(
            project.db, number, out, project.clock.now(), __version__, license_=license_,
            fetch=_fetch if data else None,
        )  # fmt: skip
    told = f"wrote {out}: {shape.count(count, 'file')}"
    return Answer(
        {"flow": number, "path": str(out.absolute()), "files": count}, (told,), (str(out),)
    )


def _fetch(address: str, target: Path) -> None:
    """Bring what an attempt left here; its place was chosen by the hub itself."""
    from pilotage.payload.transfer.allow import Allowed
    from pilotage.payload.transfer.courier import Courier

    parts = urlsplit(address)
    allowed = Allowed(
        schemes=(parts.scheme,), hosts=(parts.netloc.rpartition("@")[2],), read=(parts.path,)
    )
    asyncio.run(Courier(allowed).fetch(address, str(target), replace=True))


def _cannot(output: Path, error: OSError) -> errors.StoreUnavailable:
    message = f"cannot write `{output}`: {error.strerror}"
    return errors.StoreUnavailable(message, hint="choose another place")
