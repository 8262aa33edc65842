"""Prepare and check the node beside the conversation with the hub, which may not wait."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any, Callable

from . import checks, environment


class Boot(threading.Thread):
    """One run of the site's set-up and of all checks."""

    def __init__(
        self,
        terms: Mapping[str, Any],
        site_checks: str,
        base: Mapping[str, str],
        folder: str,
        wake: Callable[[], None],
    ) -> None:
        super().__init__(name="boot", daemon=True)
        #: The environment of payloads, and what the checks found; once this thread has ended.
        self.env: dict[str, str] = {}
        self.found: list[dict[str, Any]] = []
        self._terms = terms
        self._site_checks = site_checks
        self._base = base
        self._folder = folder
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
        os.makedirs(self._folder, exist_ok=True)
        given, setup = self._terms.get("env") or {}, self._terms.get("setup") or []
        self.env, outcome = environment.prepared(self._base, given, setup, self._folder)
        if outcome is not None and not outcome.ok:
            self.found = [_bad("setup", outcome.words)]
            return
        asked = self._terms.get("checks") or []
        self.found = checks.run(asked, self._site_checks, self.env, self._folder)


def _bad(name: str, words: str) -> dict[str, Any]:
    return {"name": name, "kind": "site", "ok": False, "words": words, "seconds": 0.0}
