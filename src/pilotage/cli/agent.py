"""`pilotage agent`: set up, run and drain the agent of this site."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from pilotage import __version__
from pilotage.agent import settings
from pilotage.base import errors
from pilotage.cli.answer import Answer
from pilotage.cli.common import HERE, Common
from pilotage.hub.project import Project
from pilotage.project.settings import AGENT_FILE

app = App(
    name="agent", help="Set up, run and drain the agent of this site.", group_commands="Commands"
)
app.command(
    "pilotage.cli.agent_status:status", name="status", help="Show how the agent of this site is."
)

_INTERRUPTED = 130
_MAKES = "`pilotage agent setup` makes `agent.toml`"
_Folder = Annotated[
    Path | None, Parameter(help="Folder of `agent.toml`; else the project from here upwards.")
]
_UNIT = """\
[Unit]
Description=Pilotage, the agent of {site}
After=network-online.target

[Service]
Type=notify
ExecStart={program} agent run {folder}
Restart=always
RestartSec=5
WatchdogSec=120
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Given:
    """What a person says of a new agent."""

    batch: Annotated[str, Parameter(help="What runs jobs here, such as slurm.")]
    url: Annotated[str, Parameter(help="The broker, such as amqps://broker.example.org:5671/.")] = (
        ""
    )
    hub: Annotated[
        str, Parameter(help="The hub, where there is no broker: https://hub.example.org:8420.")
    ] = ""
    ca: Annotated[str, Parameter(help="PEM file of the CA of the broker or the hub.")] = ""
    certificate: Annotated[str, Parameter(help="PEM file of our certificate.")] = ""
    key: Annotated[str, Parameter(help="PEM file of its key.")] = ""
    user: Annotated[str, Parameter(help="Our name in the certificate, as the broker reads it.")] = (
        ""
    )
    admin: Annotated[
        tuple[str, ...], Parameter(help="User who may cancel jobs of all users; repeatable.")
    ] = ()


@app.command
def setup(
    name: Annotated[str, Parameter(help="Name of the site in messages.")],
    /,
    *,
    given: Given,
    folder: Annotated[Path | None, Parameter(help="Folder to write to; default: this one.")] = None,
    at: Common = HERE,
) -> Answer:
    """Write the settings of an agent."""
    del at
    root = (folder or Path.cwd()).resolve()
    names = ("url", "ca", "certificate", "key", "user")
    carrier: settings.SiteBroker | settings.DialledHub = settings.SiteBroker(
        **{name: getattr(given, name) for name in names}
    )
    token: tuple[str, ...] = ()
    if given.hub:
        if given.url or given.certificate or given.key or given.user:
            message = "give the options of a broker or of a hub, not both"
            raise errors.UsageError(message, hint="with `--hub`, leave out the options of a broker")
        carrier = settings.DialledHub(url=given.hub, ca=given.ca)
        make = f"`pilotage token new agent --site {name}` at the hub"
        token = (f"put what {make} prints into {root / carrier.token_file}, and `chmod 600` it",)
    file = settings.write(root / AGENT_FILE, name, carrier, given.batch, given.admin)
    notes = (
        *token,
        "`pilotage app add NAME PROGRAM` there says what jobs may run",
        "`pilotage agent run` serves the site",
    )
    return Answer({"site": name, "file": str(file)}, (f"wrote {file}",), (name,), notes)


@app.command
def run(
    folder: _Folder = None,
    /,
    *,
    take_over: Annotated[
        bool, Parameter(help="Replace another agent of this site, which then ends.", negative="")
    ] = False,
    hub: Annotated[
        str, Parameter(help="The hub that jobs come from, such as https://hub.example.org:8420.")
    ] = "",
    at: Common = HERE,
) -> Answer:
    """Serve this site: take jobs from a broker or a hub and run them here, until Ctrl-C."""
    from pilotage.agent.process import Agent
    from pilotage.cli import engine

    with open_project(folder, at) as project:
        asked = settings.read(project.root / AGENT_FILE, hub)
        sources = ", ".join(asked.by(one).source for one in asked.carriers)
        words = (
            f"serves {asked.site}: jobs come from {sources}",
            "`pilotage agent status` shows its progress; jobs continue without this process",
        )
        choices = engine.Choices(
            serve=False, local=False, words=words,
            instead=lambda *parts: Agent(
                *parts, version=__version__, take_over=take_over, hub=hub
            ),
        )  # fmt: skip
        counts, heard = engine.drive(project, choices)
    data = {"site": asked.site, "ended": counts}
    return Answer(data, status=_INTERRUPTED if heard == signal.SIGINT else 0)


@app.command
def unit(folder: _Folder = None, /, *, at: Common = HERE) -> Answer:
    """Print a systemd unit that keeps the agent running."""
    with open_project(folder, at) as project:
        asked = settings.read(project.root / AGENT_FILE)
        root = project.root
    program = Path(sys.argv[0]).resolve()
    command = str(program) if program.name == "pilotage" else f"{sys.executable} -m pilotage"
    # A path with a blank or a percent sign means something else to systemd.
    place = str(root).replace("%", "%%").replace('"', '\\"')
    source = _UNIT.format(site=asked.site, program=command, folder=f'"{place}"')
    where = f"~/.config/systemd/user/pilotage-{asked.site}.service"
    notes = (
        f"put it into {where}; then `systemctl --user enable --now pilotage-{asked.site}`",
        "`loginctl enable-linger` lets it run while you are logged out",
    )
    return Answer({"unit": source}, tuple(source.splitlines()), (), notes)


@app.command
def drain(
    folder: _Folder = None,
    /,
    *,
    reason: Annotated[str, Parameter(help="The reason, shown to users whose jobs wait.")] = "",
    at: Common = HERE,
) -> Answer:
    """Drain the agent: it accepts no more jobs; present jobs continue."""
    return _ask(folder, "drain", "takes no more jobs", reason, at)


@app.command
def resume(folder: _Folder = None, /, *, at: Common = HERE) -> Answer:
    """Resume a drained agent: it takes jobs again."""
    return _ask(folder, "", "takes jobs again", "", at)


def _ask(folder: Path | None, asked: str, said: str, reason: str, at: Common) -> Answer:
    with open_project(folder, at) as project:
        site = settings.read(project.root / AGENT_FILE).site
        project.ask_site(site, asked, reason)
    return Answer({"site": site, "asked": asked}, (f"{site} {said}",), (site,))


def open_project(folder: Path | None, at: Common) -> Project:
    """Open the folder that is meant."""
    if folder is None:
        try:
            return at.open()
        except errors.NoProject as error:
            raise errors.NoProject(error.message, hint=_MAKES) from error
    if not folder.is_dir():
        message = f"there is no folder `{folder}`"
        raise errors.NoProject(message, hint=_MAKES)
    return Project(folder)
