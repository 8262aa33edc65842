"""Prepare and check the node beside the conversation with the hub, which may not wait."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any, Callable

from . import checks, environment
from .boxed import Folders

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
        self.found = checks.run(asked, self._site_checks, self.env, self._folder)


def sight(marker: str, shown: Folders) -> dict[str, Any]:
    """Tell what is seen of the project: by us, as its marker proves, and in a sandbox."""
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
