"""The status of an agent, as a file that `pilotage agent status` reads."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Literal

import msgspec

from pilotage.base import durable, errors
from pilotage.bus.model import Heartbeat
from pilotage.data.transfer.version import Version

#: Within the state folder.
FILE = "agent.json"
_DAY_S = 86_400.0
_READ_S = 10.0


class ConnectionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one connection."""

    #: Its name among the hubs; empty for `[bus]` or `[hub]`.
    name: str = ""
    kind: Literal["broker", "hub"] = "broker"
    #: Where it is, and what it calls the site.
    place: str = ""
    site: str = ""
    #: Whose jobs come from it, if it is a hub.
    user: str = ""
    #: Why there is no connection to it, and since when it is in this state.
    trouble: str = ""
    since: float = 0.0


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an agent at one time."""

    beat: Heartbeat
    #: The connections that jobs come by.
    carriers: tuple[ConnectionStatus, ...] = ()
    #: Problems of parts of the process, and of its settings.
    parts: dict[str, str] = {}
    settings: str = ""
    #: The queue of jobs that name none, if the settings do.
    queue: str = ""
    #: By application, which of its jobs would wait for ever.
    waits: dict[str, str] = {}


def write(state: Path, look: AgentStatus) -> None:
    """Write the status file."""
    durable.swap(state / FILE, msgspec.json.encode(look))


def read(state: Path) -> AgentStatus:
    """Read the status file."""
    try:
        return msgspec.json.decode((state / FILE).read_bytes(), type=AgentStatus)
    except FileNotFoundError:
        message = f"no agent has run in {state.parent} yet"
        raise errors.NotFound(message, hint="`pilotage agent run` runs it") from None
    except msgspec.MsgspecError as error:
        hint = "it is of another version; `pilotage agent run` rewrites it"
        raise errors.ConfigError(f"{state / FILE} cannot be read: {error}", hint=hint) from error


class Certificate:
    """Expiry of our certificate; the file is read again when it changes."""

    def __init__(self) -> None:
        """Start with an empty cache."""
        self._known: tuple[Version | None, float | None] = (None, None)

    def days(self, path: str, now: float) -> float | None:
        """Return the days until expiry; none without a certificate, or if it cannot be read."""
        version = Version.at(path)
        if version is None:
            return None
        if version != self._known[0]:
            self._known = (version, ends(path))
        end = self._known[1]
        return None if end is None else round((end - now) / _DAY_S, 2)


def ends(path: str) -> float | None:
    """Read when a certificate expires."""
    words = ["openssl", "x509", "-noout", "-enddate", "-in", path]
    try:
        said = subprocess.run(words, capture_output=True, check=True, timeout=_READ_S, text=True)
        return float(ssl.cert_time_to_seconds(said.stdout.strip().partition("=")[2]))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def free(folder: str) -> int:
    """Return the free bytes where a folder is, or will be."""
    while folder and not os.path.isdir(folder) and folder != "/":
        folder = os.path.dirname(folder)
    try:
        return shutil.disk_usage(folder or "/").free
    except OSError:
        return 0
