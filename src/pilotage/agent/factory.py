"""The files of a factory, read to tell what an agent is told instead.

A factory was a process that started pilots for the hubs in `hubs/` at the sites in `sites/`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pilotage.base import toml

FOLDER = "hubs"
#: Keys that both have, and what the same is called in the file of an application.
_LIMITS = {
    "maximum": "maximum", "pending": "pending", "cpus": "cpus", "memory": "memory", "gpus": "gpus",
    "time": "time", "queues": "queues", "accounts": "projects",
}  # fmt: skip
_APP = 'apps/pilot.toml:\ntakes = "pilot"'


def instead(root: Path) -> str:
    """Return what the files of an agent would say; empty if a folder is not that of a factory."""
    found = {name: _read(root / FOLDER / f"{name}.toml") for name in toml.names(root / FOLDER)}
    if not found:
        return ""
    ours = sorted({site for hub in found.values() for site in _sites(hub).values()})
    # One agent serves one site: further ones have folders of their own.
    here = ours[0] if ours else "NAME"
    parts = [
        f"agent.toml:\nsite = {_toml(here)}\n\n[batch]\n# the keys of sites/{here}.toml",
        *(_hub(name, hub, here) for name, hub in found.items()),
        f"{_APP}\nusers = {_toml([*found])}\n\n[limits]\nmaximum = 1\ncpus = 64",
        *(_limits(name, hub) for name, hub in found.items()),
    ]
    parts += [f"{one} has an agent in a folder of its own" for one in ours[1:]]
    return "\n\n".join(parts)


def _hub(name: str, hub: Mapping[str, Any], here: str) -> str:
    theirs = [theirs for theirs, ours in _sites(hub).items() if ours == here]
    site = theirs[0] if theirs else here
    facts = {"url": hub.get("url", ""), "token_file": f"{FOLDER}/{name}.token", "site": site}
    if hub.get("ca"):
        facts["ca"] = f"{FOLDER}/{hub['ca']}"
    make = f"# with another token: `pilotage token new agent --site {site}` at that hub"
    return "\n".join([f"[hubs.{name}]", make, *_lines(facts)])


def _limits(name: str, hub: Mapping[str, Any]) -> str:
    kept = {_LIMITS[key]: value for key, value in hub.items() if key in _LIMITS}
    return "\n".join([f"[user.{name}]", *_lines(kept)])


def _sites(hub: Mapping[str, Any]) -> dict[str, str]:
    found = hub.get("sites")
    return {str(one): str(other) for one, other in found.items()} if isinstance(found, dict) else {}


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _lines(facts: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in facts.items()]


def _toml(value: object) -> str:
    """Write a text, a number or a list of them, as TOML and JSON do."""
    return json.dumps(value, default=str)
