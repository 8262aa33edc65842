"""Types of pilots and nodes, as sent over the link and kept in the store."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from pilotage.run.model import Usage

#: The version of the conversation between a pilot and the hub.
PROTOCOL = 1
#: A launch in which only the numbers of the attempt are missing, and the files it names.
Template = tuple[bytes, list[str]]
Templates = dict[int, Template]


class PilotState(StrEnum):
    """States of a pilot."""

    #: Requested; nothing was submitted yet.
    REQUESTED = "requested"
    #: It waits in a batch queue.
    SUBMITTED = "submitted"
    #: It has enrolled and checks its node.
    BOOTING = "booting"
    #: It takes work.
    AVAILABLE = "available"
    #: It finishes what it has and takes no more.
    DRAINING = "draining"
    #: It has left in order.
    DOWN = "down"
    #: Its node did not pass the checks.
    FAILED = "failed"
    #: It has not reported for longer than its lease.
    LOST = "lost"


class Project(StrEnum):
    """Access of a pilot's payloads to the project's folder."""

    #: Unknown: the pilot is of an earlier version.
    UNKNOWN = ""
    #: Nothing: what they need is brought.
    HIDDEN = "hidden"
    #: They may read it.
    READABLE = "readable"
    #: They may read it and write there.
    WRITABLE = "writable"


class Gpu(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU of a node."""

    #: What the driver calls it, and the number or name that a program asks for it by.
    name: str = ""
    device: str = ""
    #: Bytes of memory.
    memory: int = 0


class NodeFacts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Hardware and software of a node, as its pilot reports it."""

    #: Host name.
    host: str
    #: Absolute path of the pilot's folder on the node.
    work: str
    #: Cores, bytes of memory and of disk that it may use.
    cpus: int
    memory: int
    disk: int = 0
    gpus: tuple[Gpu, ...] = ()
    #: Such as `linux`, `x86_64` and `debian-12`.
    os: str = ""
    arch: str = ""
    release: str = ""
    #: The interpreter, and its version such as `3.11.2`.
    python: str = ""
    python_version: str = ""
    #: Sandboxes that work here, such as `("bubblewrap", "podman")`.
    sandboxes: tuple[str, ...] = ()
    #: Seconds until the node is taken away; nothing if unknown.
    lifetime: float | None = None
    #: The batch job that the pilot is in, such as `slurm:1234`.
    batch: str = ""
    #: What payloads see of the project's folder, and what those in a container see of it.
    project: Project = Project.UNKNOWN
    boxed: Project = Project.UNKNOWN
    #: Anything else that requirements may ask for; values are text, numbers or truth values.
    attributes: dict[str, Any] = {}


class NodeCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of a validation script."""

    name: str
    #: Whose script it was: `hub`, `site` or `group`.
    kind: str
    ok: bool
    #: What it said.
    words: str = ""
    seconds: float = 0.0


class ReportedEnd(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """End of an attempt, as a pilot reports it."""

    #: The attempt, `<job>.<number>`.
    key: str
    time: float
    exit: int | None = None
    signal: int | None = None
    #: A `payload.model.Why`.
    reason: str
    message: str = ""
    usage: Usage | None = None
    #: Declared outputs that are not there.
    missing: tuple[str, ...] = ()
    #: Why outputs could not be sent to the hub; empty if they were, or need not be.
    unsaved: str = ""
    #: What the function returned.
    result: Any = None
    #: What was written and not sent before, in base64.
    stdout: str = ""
    stderr: str = ""


class NotRunnable(Exception):
    """A job cannot run on this node; the text says why."""


class JobCancelled(Exception):
    """A job must not run at all any more; the text says why."""
