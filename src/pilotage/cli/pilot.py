"""`pilotage pilot`: run a pilot here, or pack one for other machines."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from pilotage.base import units
from pilotage.cli.answer import Answer, line
from pilotage.cli.common import HERE, Common

app = App(name="pilot", help="See pilots, be one, or pack one.", group_commands="Commands")
for _name, _help in (
    ("ls", "List pilots."),
    ("show", "Show all that is known of a pilot."),
    ("drain", "Let pilots finish what they run, and leave."),
    ("stop", "Have pilots end what they run, and leave."),
):
    app.command(f"pilotage.cli.fleet:{_name}", help=_help)
app.command("pilotage.cli.fleet:start", help="Start pilots at a site.")


@app.command(help_flags=())
def run(
    *words: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="Options of the pilot; `--help` lists them.")
    ],
    at: Common = HERE,
) -> None:
    """Offer this machine to a hub, and run what it sends."""
    del at
    # In place of this process, so that no second one ever holds the secret.
    command = [sys.executable, "-m", "pilotage.node", *words]
    os.execv(sys.executable, command)  # noqa: S606 - no shell is wanted


@app.command
def pack(
    file: Annotated[Path, Parameter(help="The file to write.")] = Path("pilotage-pilot.pyz"),
    *,
    at: Common = HERE,
) -> Answer:
    """Write the pilot as one file, which needs nothing but Python 3.9."""
    from pilotage.pilot import pack as packing

    del at
    size = packing.write(file)
    said = line(f"{file}: {units.bytes_for_people(size)}")
    return Answer({"file": str(file), "size": size}, (said,), (str(file),))
