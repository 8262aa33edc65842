"""MEOW patterns: files by path, messages by port."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pilotage.compat.meow import check
from pilotage.event.model import EventKind
from pilotage.rule import glob, sweep

FILE_CREATED_EVENT = "file_created"
FILE_MODIFIED_EVENT = "file_modified"
FILE_MOVED_EVENT = "file_moved"
FILE_CLOSED_EVENT = "file_closed"
FILE_DELETED_EVENT = "file_deleted"
FILE_RETROACTIVE_EVENT = "file_retroactive"
DIR_CREATED_EVENT = "dir_created"
DIR_MODIFIED_EVENT = "dir_modified"
DIR_MOVED_EVENT = "dir_moved"
DIR_DELETED_EVENT = "dir_deleted"
DIR_RETROACTIVE_EVENT = "dir_retroactive"

#: Each type of event with what we call it.
KINDS = {
    FILE_CREATED_EVENT: EventKind.FILE_CREATED,
    FILE_MODIFIED_EVENT: EventKind.FILE_MODIFIED,
    FILE_MOVED_EVENT: EventKind.FILE_MOVED,
    FILE_CLOSED_EVENT: EventKind.FILE_CLOSED,
    FILE_DELETED_EVENT: EventKind.FILE_DELETED,
    FILE_RETROACTIVE_EVENT: EventKind.FILE_EXISTING,
    DIR_CREATED_EVENT: EventKind.DIR_CREATED,
    DIR_MODIFIED_EVENT: EventKind.DIR_MODIFIED,
    DIR_MOVED_EVENT: EventKind.DIR_MOVED,
    DIR_DELETED_EVENT: EventKind.DIR_DELETED,
    DIR_RETROACTIVE_EVENT: EventKind.DIR_EXISTING,
}

DEFAULT_MASK = (
    FILE_CREATED_EVENT,
    FILE_MODIFIED_EVENT,
    FILE_MOVED_EVENT,
    FILE_CLOSED_EVENT,
    FILE_RETROACTIVE_EVENT,
)

_RANGE = ("start", "stop", "jump")
_UNSENT = "no mail is sent; a rule on ended jobs can run a program that does"
#: From the check of a pattern up to the line that made it.
_UP = 4
_UNTRACED = "files that jobs write are not traced; declare them as outputs"


class Pattern:
    """What fires a recipe, and with which values of its variables."""

    name: str
    #: The name of the recipe.
    recipe: str
    parameters: dict[str, Any]
    outputs: dict[str, str]
    sweep: dict[str, Any]
    notifications: dict[str, Any]
    tracing: str

    @property
    def variable(self) -> str:
        """The variable that holds the path of what fired it."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        check.name(self.name, "the name of a pattern")
        check.name(self.recipe, "the name of a recipe")
        check.variable(self.variable, "the variable of what fired")
        self.parameters = check.table(self.parameters, "parameters")
        self.outputs = check.table(self.outputs, "outputs")
        for name, path in self.outputs.items():
            check.kind(path, str, f"outputs[{name!r}]")
        points(self.sweep)
        self.notifications = check.facts(self.notifications, "notifications")
        check.not_done(self.notifications, "notifications", _UNSENT, _UP)
        check.not_done(check.kind(self.tracing, str, "tracing"), "tracing", _UNTRACED, _UP)


@dataclass
class FileEventPattern(Pattern):
    """Files and directories below the base of a monitor."""

    name: str
    #: A glob; as in shells, `*` stays in one directory, and `**` does not.
    triggering_path: str
    #: The name of the recipe.
    recipe: str
    #: The variable that holds the path of the file.
    triggering_file: str
    event_mask: list[str] = field(default_factory=lambda: list(DEFAULT_MASK))
    parameters: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    sweep: dict[str, Any] = field(default_factory=dict)
    notifications: dict[str, Any] = field(default_factory=dict)
    tracing: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        path = check.name(self.triggering_path, "triggering_path")
        if path.startswith("/"):
            raise ValueError(f"triggering_path {path!r} must be relative to the monitor's base")
        glob_below("/", path)
        self.event_mask = check.items(self.event_mask, "event_mask")
        if not self.event_mask or not set(self.event_mask) <= KINDS.keys():
            raise ValueError(f"event_mask {self.event_mask!r} must hold some of {list(KINDS)}")

    @property
    def variable(self) -> str:
        """The variable that holds the path of what fired it."""
        return self.triggering_file


@dataclass
class SocketPattern(Pattern):
    """Messages that come to a TCP port of this machine; each connection is one."""

    name: str
    triggering_port: int
    #: The name of the recipe.
    recipe: str
    #: The variable that holds the path of the file in which the message is.
    triggering_message: str
    parameters: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    sweep: dict[str, Any] = field(default_factory=dict)
    notifications: dict[str, Any] = field(default_factory=dict)
    tracing: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if check.kind(self.triggering_port, int, "triggering_port") not in check.PORTS:
            bounds = f"{check.PORTS[0]} to {check.PORTS[-1]}"
            raise ValueError(f"triggering_port is {self.triggering_port}: it must be {bounds}")

    @property
    def variable(self) -> str:
        """The variable that holds the path of what fired it."""
        return self.triggering_message


def create_parameter_sweep(
    var: str, start: float, stop: float, jump: float
) -> dict[str, dict[str, float]]:
    """Describe the values of a variable, both ends included; one job each."""
    found = {var: {"start": start, "stop": stop, "jump": jump}}
    points(found)
    return found


def points(described: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return every combination of the values of variables."""
    for name, ends in check.kind(described, dict, "sweep").items():
        check.variable(name, "a variable of sweep")
        for end in _RANGE:
            if end not in check.kind(ends, dict, f"sweep[{name!r}]"):
                raise KeyError(f"sweep[{name!r}] has no {end!r}")
            check.number(ends[end], f"{end!r} of sweep[{name!r}]")
    with check.as_value_error("sweep"):
        return sweep.points(described) if described else ({},)


def kinds(mask: Iterable[str]) -> frozenset[EventKind]:
    """Return the events of a mask; a file that is closed was created or changed before."""
    found = frozenset(KINDS[name] for name in mask)
    if EventKind.FILE_CLOSED in found:
        found -= {EventKind.FILE_CREATED, EventKind.FILE_MODIFIED}
    return found


def glob_below(base: str, path: str) -> str:
    """Write a path of MEOW, which has no captures, as a glob below a directory."""
    escaped = path.replace("{", "{{").replace("}", "}}")
    parts = (part if part == "**" else re.sub(r"\*+", "*", part) for part in escaped.split("/"))
    with check.as_value_error("triggering_path"):
        found = glob.absolute("/".join(parts), base)
        glob.parse(found)
    return found
