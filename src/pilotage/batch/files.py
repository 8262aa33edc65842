"""The files that describe the sites of a project: `sites/NAME.toml`."""

from __future__ import annotations

import contextlib
import re
import secrets
from pathlib import Path

import msgspec

from pilotage.base import durable, toml
from pilotage.batch import model
from pilotage.batch.model import SiteSettings

FOLDER = "sites"

#: Within the state folder of a project.
_IDENTITY = "id"
_TABLE = ("env", "defaults", "plugin")


SITES = toml.TomlFolder(
    folder=FOLDER, kind=SiteSettings, noun="site", page="sites", hint="`pilotage site add`",
    check=model.check,
)  # fmt: skip
file_of, names, read, read_all, parse = (
    SITES.file, SITES.names, SITES.read, SITES.read_all, SITES.parse,
)  # fmt: skip


def place(site: SiteSettings, state: Path) -> str:
    """Return the folder of a project at a site; `state` is the state folder of the project."""
    return f"{site.folder}/{identity(state)}"


def identity(state: Path) -> str:
    """Return the unique name of a project; create it if there is none."""
    file = state / _IDENTITY
    if not file.exists():
        with contextlib.suppress(FileExistsError):
            durable.create(file, secrets.token_hex(6))
    return file.read_text().strip()


def write(root: Path, name: str, site: SiteSettings) -> Path:
    """Write the file of a new site; never overwrite one."""
    model.check(name, site)
    return SITES.create(root, name, text(name, site))


def text(name: str, site: SiteSettings) -> str:
    """Write a site as TOML: what differs from the defaults, with a word on each."""
    where = (
        f"jobs go there by `ssh {site.host}`" if site.host else "its programs are on this machine"
    )
    lines = [f"# Site {name}: {where}.", f"# `pilotage site check {name}` checks it."]
    fresh = SiteSettings(batch=site.batch)
    tables = list[str]()
    for key in SiteSettings.__struct_fields__:
        value = getattr(site, key)
        if key == "batch" or value != getattr(fresh, key):
            if key in _TABLE:
                tables += _table(key, value)
            else:
                lines += ["", *_comment(key), f"{key} = {_toml(value)}"]
    return "\n".join([*lines, *tables, ""])


def _table(key: str, value: object) -> list[str]:
    given: dict[str, object] = msgspec.to_builtins(value)
    usual: dict[str, object] = msgspec.to_builtins(model.Defaults()) if key == "defaults" else {}
    told = [f"{_key(name)} = {_toml(one)}" for name, one in given.items() if one != usual.get(name)]
    return ["", *_comment(key), f"[{key}]", *told]


def _comment(key: str) -> list[str]:
    return [f"# {_ABOUT[key]}"] if key in _ABOUT else []


_ABOUT = {
    "batch": "What runs jobs there.",
    "host": "The host to log in to, as `ssh` knows it.",
    "ssh_config": "Settings of `ssh`, instead of your own.",
    "folder": "Login and worker nodes share it; relative to your home directory there.",
    "python": "Python 3.9 or newer, at the login node and at worker nodes.",
    "path": "Where the batch system's programs are.",
    "env": "Environment of the batch system's programs.",
    "jobs": "Jobs that may be there at once.",
    "launcher": "How parallel jobs are started.",
    "defaults": "What jobs ask for unless they say otherwise.",
    "plugin": "Settings of the plug-in for its batch system.",
}


def _toml(value: object) -> str:
    """Write a value; TOML's texts, numbers and lists of them are JSON's."""
    return msgspec.json.encode(value).decode()


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)
