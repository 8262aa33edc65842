"""Servers that the hub itself may reach for data of workflows, with its credentials."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import msgspec

from pilotage.base import errors, text
from pilotage.data.transfer import url
from pilotage.data.transfer.allow import DEFAULT_PORT, Allowed
from pilotage.data.transfer.courier import Courier, flags
from pilotage.data.transfer.keys import Credentials
from pilotage.data.transfer.retrying import RetryPolicy
from pilotage.data.transfer.url import PORT
from pilotage.edge.handoff import DataStore, DataStores
from pilotage.project.settings import FLOWS, FlowSettings, port_folder
from pilotage.store import Db

#: Few retries: callers retry themselves, and others must not wait long for one server.
PATIENCE = RetryPolicy(attempts=3, delay=0.5, longest=10.0, deadline=3600.0)


def stores(settings: FlowSettings, state: Path, db: Db) -> DataStores:
    """Return the data stores of workflows, and of jobs at sites with an agent.

    Without a transfer server, sites whose agents dial this hub use its own port.
    """
    return DataStores(
        local=f"file://{state / FLOWS / 'data'}",
        data=settings.data or PORT,
        here=settings.here if settings.data else f"file://{port_folder(state)}",
        reaches=lambda site: bool(settings.data) or dials(db, site),
        sites={
            name: DataStore(one.data, one.read, frozenset(one.readers))
            for name, one in settings.site.items()
        },
    )


def dials(db: Db, site: str) -> bool:
    """Return whether the agent of a site dials this hub's own port, or is to.

    One that has not enrolled yet, or was revoked, is waited for, as one is that is silent.
    """
    return db.value("agent_expected", site=site) is not None


class Reach:
    """Transfer clients of the hub, each limited to some servers."""

    def __init__(self, settings: FlowSettings, root: Path, state: Path) -> None:
        """Take where the project is."""
        own, folders = _stores(settings)
        hosts = (*settings.hosts, *own)
        keys = {host: _placed(one, root) for host, one in settings.credentials.items()}

        def courier(*read: str, write: tuple[str, ...] = ()) -> Courier:
            allowed = Allowed(schemes=tuple(flags()), hosts=hosts, read=read, write=write)
            return Courier(allowed, keys=keys, patience=PATIENCE)

        inside = (str(state / FLOWS), *folders)
        #: For what steps have left.
        self.inside = courier(*inside, write=inside)
        #: For URLs that the owner of a workflow has written.
        self.outside = courier(*settings.folders, write=settings.folders)
        #: For files of the project.
        self.own = courier(str(root), write=(str(root),))


def _stores(settings: FlowSettings) -> tuple[list[str], list[str]]:
    """List hosts and folders that data of workflows lies at."""
    hosts, folders = [], []
    addresses = (settings.data, settings.here, *(one.read for one in settings.site.values()))
    for where in (url.parse(one) for one in addresses if one):
        if where.scheme == "file":
            folders.append(where.path)
        else:
            port = where.port or DEFAULT_PORT.get(where.scheme, 0)
            name = f"[{where.host}]" if ":" in where.host else where.host
            hosts.append(f"{name}:{port}" if port else where.host)
    return hosts, folders


def own(root: Path, name: str) -> str:
    """Write the address of a file of the project; one that is hidden, or not below it, is none."""
    path = os.path.normpath(os.path.relpath(name, root) if os.path.isabs(name) else name)
    real = os.path.relpath(os.path.realpath(root / path), os.path.realpath(root))
    parts = {part for one in (path, real) for part in one.split(os.sep)}
    if any(part.startswith(".") for part in parts):
        message = f"{text.show(name)} is hidden, or not below the folder of the project"
        raise errors.Denied(message, hint="name files of the project, or give a URL")
    return f"file://{quote(os.fsencode(root / path))}"


def _placed(one: Credentials, root: Path) -> Credentials:
    """Name files in full: a hub is not always begun in its project's folder."""
    found = msgspec.structs.asdict(one)
    return Credentials(**{name: str(root / path) if path else "" for name, path in found.items()})
