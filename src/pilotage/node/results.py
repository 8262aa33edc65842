"""Ends that the hub has not acknowledged, on disk."""

from __future__ import annotations

import contextlib
import os

from . import durable


class Results:
    """A folder of ends; each is there whole or not at all."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self._folder = folder
        self._kept: set[str] = set()

    def keep(self, ends: dict[str, str]) -> None:
        """Write ends down, and return when they are on disk."""
        fresh = {key: text for key, text in ends.items() if key not in self._kept}
        for key, text in fresh.items():
            target = self._name(key)
            durable.fill(f"{target}.part", text.encode("utf-8", "replace"))
            os.rename(f"{target}.part", target)
        if fresh:
            durable.sync(self._folder)
        self._kept.update(fresh)

    def drop(self, key: str) -> None:
        """Forget an end that the hub has."""
        if key in self._kept:
            self._kept.discard(key)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._name(key))

    def _name(self, key: str) -> str:
        return os.path.join(self._folder, f"{key.replace('/', '_')}.json")
