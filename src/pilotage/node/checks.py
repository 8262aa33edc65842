"""Find out whether this node is fit for work, with scripts of the hub, the site and the group."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

from . import scripts

_log = logging.getLogger("pilot")
_DEFAULT_SECONDS = 60.0


def run(
    asked: Iterable[Mapping[str, Any]], site: str, env: Mapping[str, str], folder: str
) -> list[dict[str, Any]]:
    """Run all scripts, those of the site last, and tell what each found."""
    os.makedirs(folder, exist_ok=True)
    found = [_written(number, one, env, folder) for number, one in enumerate(asked)]
    return found + [_placed(path, env, folder) for path in _executables(site)]


def failure(found: Iterable[Mapping[str, Any]]) -> str:
    """Say what failed, in one line; empty if nothing did."""
    bad = [f"{one['kind']} check {one['name']}: {one['words']}" for one in found if not one["ok"]]
    return "; ".join(bad)[:2000]


def _written(
    number: int, one: Mapping[str, Any], env: Mapping[str, str], folder: str
) -> dict[str, Any]:
    """Run a script that came over the link."""
    path = os.path.join(folder, f"check-{number}")
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(one["source"])
    argv = [*scripts.interpreter(one["source"]), path]
    timeout = one.get("timeout") or _DEFAULT_SECONDS
    outcome = scripts.run(argv, env, folder, f"check-{number}", timeout)
    return _told(one["name"], one["kind"], outcome)


def _placed(path: str, env: Mapping[str, str], folder: str) -> dict[str, Any]:
    """Run a program that lies on the node."""
    name = os.path.basename(path)
    outcome = scripts.run([path], env, folder, f"site-{name}", _DEFAULT_SECONDS)
    return _told(name, "site", outcome)


def _told(name: str, kind: str, outcome: scripts.Outcome) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "ok": outcome.ok,
        "words": outcome.words,
        "seconds": round(outcome.seconds, 3),
    }


def _executables(site: str) -> list[str]:
    if not site:
        return []
    try:
        names = sorted(os.listdir(site))
    except OSError as error:
        raise ValueError(f"no checks can be read in {site}: {error.strerror}") from error
    found = []
    for path in (os.path.join(site, name) for name in names):
        if os.access(path, os.X_OK) and os.path.isfile(path):
            found.append(path)
        elif os.path.isfile(path):
            _log.warning("%s is not executable, so it is no check", path)
    return found
