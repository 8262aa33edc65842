"""`pilotage flow graph`, `report` and `crate`: a workflow as a picture, a page and a crate."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from cyclopts import Parameter

from pilotage import __version__
from pilotage.cli import flow, flow_submit, formatting, picture
from pilotage.cli.answer import Answer
from pilotage.cli.common import HERE, Common
from pilotage.flow import picture as pictures

_OUT = Parameter(name=("--output", "--out", "-o"), help="Write it there.")
_TEXT = picture.Form()


def graph(
    name: Annotated[
        str, Parameter(name="FLOW", help="Number of a flow, `last`, a name, or a file.")
    ],
    /,
    *,
    form: picture.Form = _TEXT,
    param: flow_submit.Params = (),
    at: Common = HERE,
) -> Answer:
    """Draw the steps of a workflow with their states, or those of a file."""
    now = 0.0
    if flow_submit.is_file(name):
        asked = flow_submit.read(Path(name), flow_submit.params(param))
        title, steps = asked.name, pictures.plan(asked)
    else:
        with at.open() as project:
            found = flow.seen(project, flow.number(project, name))
            now = project.clock.now()
        title, steps = f"{found.row.name}, flow {found.row.id}", found.steps
    drawn = pictures.draw(steps)
    data = {"name": title, "graph": msgspec.to_builtins(drawn)}
    return form.draw(pictures.as_graph(drawn, now), title, data)


def report(
    name: flow.One,
    /,
    *,
    output: Annotated[Path | None, _OUT] = None,
    title: Annotated[str, Parameter(help="Its title; default: the flow's name.")] = "",
    at: Common = HERE,
) -> Answer:
    """Write a report of a workflow as one self-contained HTML file."""
    # It brings the template engine along, which no other command needs.
    from pilotage.flow import report as reports

    with at.open() as project:
        number = flow.number(project, name)
        page = reports.render(project.db, number, project.clock.now(), title)
    out = output or Path(f"flow-{number}.html")
    picture.save(out, page)
    return Answer({"flow": number, "path": str(out.absolute())}, (f"wrote {out}",), (str(out),))


def crate(
    name: flow.One,
    /,
    *,
    output: Annotated[
        Path | None,
        Parameter(name=("--output", "--out", "-o"), help="A folder, or a file that ends in .zip."),
    ] = None,
    data: Annotated[
        bool, Parameter(help="Include the output files, not only their locations.")
    ] = False,
    license_: Annotated[
        str, Parameter(name="--license", help="Its licence: a URL or a sentence.")
    ] = "",
    at: Common = HERE,
) -> Answer:
    """Write a workflow with its provenance as an RO-Crate."""
    from pilotage.flow import crate_file

    with at.open() as project:
        number = flow.number(project, name)
        out = output or Path(f"flow-{number}-crate")
        count = crate_file.write(
            project.db, number, out, project.clock.now(), __version__, license_=license_,
            fetch=_fetch if data else None,
        )  # fmt: skip
    told = f"wrote {out}: {formatting.count(count, 'file')}"
    return Answer(
        {"flow": number, "path": str(out.absolute()), "files": count}, (told,), (str(out),)
    )


def _fetch(address: str, target: Path) -> None:
    """Bring what an attempt left here; its place was chosen by the hub itself."""
    from pilotage.data.transfer.allow import Allowed
    from pilotage.data.transfer.courier import Courier

    parts = urlsplit(address)
    allowed = Allowed(
        schemes=(parts.scheme,), hosts=(parts.netloc.rpartition("@")[2],), read=(parts.path,)
    )
    asyncio.run(Courier(allowed).fetch(address, str(target), replace=True))
