"""The files that describe the applications of a site: `apps/NAME.toml`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from pilotage.agent.app import check
from pilotage.agent.app.model import Application, Parameter
from pilotage.base import durable, errors, toml

FOLDER = "apps"
_ENABLED = re.compile(r"^enabled[ \t]*=[ \t]*(?:true|false)[ \t]*(#.*)?$", re.MULTILINE)
#: Keys of the file itself that a new one has, and a word on each.
_ABOUT = {
    "about": "What it is, for people.",
    "version": "Each job keeps it in its record.",
    "executable": "The program, and the SHA-256 that it must have.",
    "argv": "Its arguments: each is one argument, whatever the parameters in it hold.",
    "launcher": "What starts its tasks: none, srun or mpirun.",
    "container": "The container image that it runs in.",
    "preprocess": "Runs in the job's folder before it.",
    "postprocess": "Runs in the job's folder after it.",
}
#: A word before each table.
_TABLE_ABOUT = {
    "parameter": "What a user may fill in.",
    "limits": "What a job may ask for; an empty list means any.",
    "user": "What single users may ask for instead.",
    "staging": "Where data may come from and go to; no hosts means none.",
    "config": "How a config file becomes parameters.",
    "env": "Environment variables that are always set.",
    "pins": "The SHA-256 of each further program.",
}


APPS = toml.Folder(
    folder=FOLDER, kind=Application, noun="application", page="applications",
    hint="`pilotage app add`",
    check=check.check, mode=0o644,
)  # fmt: skip
file_of, names, read, parse = APPS.file, APPS.names, APPS.read, APPS.parse


def write(root: Path, name: str, app: Application) -> Path:
    """Write the file of a new application, which only its owner may change."""
    check.check(name, app)
    return APPS.create(root, name, text(name, app))


def switch(root: Path, name: str, *, enabled: bool) -> Path:
    """Enable or disable an application; nothing else in its file changes."""
    read(root, name)
    file = file_of(root, name)
    source = file.read_text(encoding="utf-8")
    line = f"enabled = {'true' if enabled else 'false'}"
    head, bracket, tail = source.partition("\n[")
    if _ENABLED.search(head):
        head = _ENABLED.sub(lambda found: " ".join([line, found[1] or ""]).rstrip(), head, count=1)
    else:
        head = f"{line}\n{head}"
    made = head + bracket + tail
    if parse(made, name, file).enabled is not enabled:
        raise errors.Conflict(
            f"{file} says `enabled` where it is not found", hint="change it there"
        )
    durable.write(file, made)
    return file


def text(name: str, app: Application) -> str:
    """Write an application as TOML: what differs from the defaults, with a word on each."""
    lines = [
        f"# Application {name}. `pilotage app test {name}` shows what runs for which parameters.",
    ]
    fresh = Application(executable="", sha256="")
    tables: list[str] = []
    for key in Application.__struct_fields__:
        value = getattr(app, key)
        if isinstance(value, msgspec.Struct) or (isinstance(value, dict) and value):
            tables += ["", f"# {_TABLE_ABOUT[key]}", *_table(key, value, getattr(fresh, key))[1:]]
        elif value != getattr(fresh, key) or key in ("version", "enabled", "argv"):
            lines += [
                "",
                *([f"# {_ABOUT[key]}"] if key in _ABOUT else []),
                f"{key} = {_toml(value)}",
            ]
    return "\n".join([*lines, *tables, ""])


def _table(key: str, value: object, usual: object) -> list[str]:
    """Write a table, or one for each of its members."""
    if isinstance(value, dict) and all(isinstance(one, msgspec.Struct) for one in value.values()):
        return [
            line
            for name, one in value.items()
            for line in _section(f"{key}.{_key(name)}", one, _usual(one))
        ]
    if isinstance(value, dict):
        return ["", f"[{key}]", *(f"{_key(name)} = {_toml(one)}" for name, one in value.items())]
    if key == "limits":
        return _section(key, value, {"maximum": 0, "pending": 0})
    return _section(key, value, {} if key == "staging" else _plain(usual))


def _section(head: str, value: object, usual: dict[str, Any]) -> list[str]:
    given = _plain(value)
    told = [
        f"{_key(name)} = {_toml(one)}"
        for name, one in given.items()
        if one is not None and (name == "kind" or name not in usual or one != usual[name])
    ]
    return ["", f"[{head}]", *told]


def _usual(one: msgspec.Struct) -> dict[str, Any]:
    return _plain(Parameter(kind=one.kind)) if isinstance(one, Parameter) else _plain(type(one)())


def _plain(value: object) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(value) if value is not None else {}
    return found


def _toml(value: object) -> str:
    """Write a value; TOML's texts, numbers, lists and tables in a line are almost JSON's."""
    if isinstance(value, dict):
        inner = ", ".join(
            f"{_key(name)} = {_toml(one)}" for name, one in value.items() if one is not None
        )
        return f"{{ {inner} }}"
    return msgspec.json.encode(value).decode()


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)
