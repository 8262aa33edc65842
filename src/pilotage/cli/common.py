"""Options of all commands: the project and the output format."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from pilotage.base import errors

if TYPE_CHECKING:
    from pilotage.hub.project import Project

Mode = Literal["table", "json", "quiet"]
_MODES: tuple[Mode, ...] = ("table", "json", "quiet")
_GROUP = Group("Everywhere", sort_key=100)


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """Options of every command."""

    #: One JSON value instead of text for people.
    json: Annotated[
        bool,
        Parameter(group=_GROUP, help="Print one JSON value (also PILOTAGE_OUTPUT=json)."),
    ] = False
    #: Only ids.
    quiet: Annotated[
        bool, Parameter(name=("--quiet", "-q"), group=_GROUP, help="Print ids only.")
    ] = False
    #: The folder of the project, or one below it.
    project: Annotated[
        Path | None,
        Parameter(
            group=_GROUP,
            env_var="PILOTAGE_PROJECT",
            help="Folder of the project; else the nearest from here upwards.",
        ),
    ] = None

    @property
    def mode(self) -> Mode:
        """Return how to answer; an option beats the environment."""
        if self.json or self.quiet:
            return "json" if self.json else "quiet"
        return mode_of_environment()

    def open(self) -> Project:
        """Open the project that is meant."""
        from pilotage.hub.project import Project

        if self.project is not None and not self.project.is_dir():
            message = f"there is no folder `{self.project}`"
            raise errors.NoProject(message, hint="`--project` names the folder of a project")
        return Project.find(self.project)


HERE = Common()


def mode_of_environment() -> Mode:
    """Read the mode that the environment asks for."""
    wanted = os.environ.get("PILOTAGE_OUTPUT", "") or "table"
    for mode in _MODES:
        if wanted == mode:
            return mode
    message = f"PILOTAGE_OUTPUT is `{wanted}`"
    raise errors.UsageError(message, hint="it may be `table`, `json` or `quiet`")
