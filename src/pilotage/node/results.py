"""Ends that the hub has not acknowledged, on disk."""

from __future__ import annotations

import contextlib
import os


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
            with open(f"{target}.part", "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.rename(f"{target}.part", target)
        if fresh:
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        self._kept.update(fresh)

    def drop(self, key: str) -> None:
        """Forget an end that the hub has."""
        if key in self._kept:
            self._kept.discard(key)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._name(key))

    def _name(self, key: str) -> str:
        return os.path.join(self._folder, f"{key.replace('/', '_')}.json")
