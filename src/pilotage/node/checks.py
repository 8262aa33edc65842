"""Prepare and check the node in a thread, with scripts of the hub, the site and the group."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Callable

from . import environment
from .boxed import Folders

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
    """Return what failed, in one line; empty if nothing did."""
    bad = [f"{one['kind']} check {one['name']}: {one['words']}" for one in found if not one["ok"]]
    return "; ".join(bad)[:2000]


def _written(
    number: int, one: Mapping[str, Any], env: Mapping[str, str], folder: str
) -> dict[str, Any]:
    """Run a script that came over the link."""
    path = os.path.join(folder, f"check-{number}")
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(one["source"])
    argv = [*environment.interpreter(one["source"]), path]
    timeout = one.get("timeout") or _DEFAULT_SECONDS
    outcome = environment.run(argv, env, folder, f"check-{number}", timeout)
    return _told(one["name"], one["kind"], outcome)


def _placed(path: str, env: Mapping[str, str], folder: str) -> dict[str, Any]:
    """Run a program that lies on the node."""
    name = os.path.basename(path)
    outcome = environment.run([path], env, folder, f"site-{name}", _DEFAULT_SECONDS)
    return _told(name, "site", outcome)


def _told(name: str, kind: str, outcome: environment.Outcome) -> dict[str, Any]:
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


_LONGEST_MARKER = 200


class Boot(threading.Thread):
    """One run of the site's set-up and of all checks."""

    def __init__(
        self,
        terms: Mapping[str, Any],
        site_checks: str,
        base: Mapping[str, str],
        folder: str,
        shown: Folders,
        wake: Callable[[], None],
    ) -> None:
        super().__init__(name="boot", daemon=True)
        #: The environment of payloads, what the checks found, and what is seen of the project;
        #: once this thread has ended.
        self.env: dict[str, str] = {}
        self.found: list[dict[str, Any]] = []
        self.sight: dict[str, Any] = {}
        self._terms = terms
        self._site_checks = site_checks
        self._base = base
        self._folder = folder
        self._shown = shown
        self._wake = wake

    def run(self) -> None:
        """Prepare the environment, then run the checks in it."""
        try:
            self._work()
        except (OSError, ValueError, KeyError, TypeError) as error:
            words = str(error) if isinstance(error, (OSError, ValueError)) else repr(error)
            self.found = [_bad("checks", f"cannot check this node: {words}")]
        finally:
            self._wake()

    def _work(self) -> None:
        if marker := self._terms.get("marker"):
            self.sight = sight(str(marker), self._shown)
        os.makedirs(self._folder, exist_ok=True)
        given, setup = self._terms.get("env") or {}, self._terms.get("setup") or []
        self.env, outcome = environment.prepared(self._base, given, setup, self._folder)
        if outcome is not None and not outcome.ok:
            self.found = [_bad("setup", outcome.words)]
            return
        asked = self._terms.get("checks") or []
        self.found = run(asked, self._site_checks, self.env, self._folder)


def sight(marker: str, shown: Folders) -> dict[str, Any]:
    """Return what is seen of the project: by us, as its marker proves, and in a sandbox."""
    folder = os.path.dirname(os.path.dirname(marker))
    try:
        with open(marker, encoding="ascii", errors="replace") as file:
            seen = file.read(_LONGEST_MARKER)
    except OSError:
        return {"seen": ""}
    return {
        "seen": seen,
        "writable": os.access(folder, os.W_OK),
        "shown": shown.how(folder),
    }


def _bad(name: str, words: str) -> dict[str, Any]:
    return {"name": name, "kind": "site", "ok": False, "words": words, "seconds": 0.0}
