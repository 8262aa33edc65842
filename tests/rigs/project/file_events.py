"""A sink and what it knows in memory: for tests, and to show in which order a batch applies."""

from __future__ import annotations

import threading

from pilotage.event.file.model import Entry, FileBatch
from pilotage.event.model import Event


class Memory:
    """Both `Known` and `Sink`."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        self.rows: dict[str, dict[str, Entry]] = {}
        self.batches: list[FileBatch] = []
        self._lock = threading.Lock()

    def events(self) -> list[Event]:
        """Return all events put so far."""
        with self._lock:
            return [event for batch in self.batches for event in batch.events]

    def put(self, batch: FileBatch) -> None:
        """Apply a batch at once."""
        with self._lock:
            self.batches.append(batch)
            for path in batch.tree_gone:
                for directory in self._below(path):
                    del self.rows[directory]
            for directory, name in batch.gone:
                self.rows.get(directory, {}).pop(name, None)
            for directory, name, is_dir, inode, size, mtime_ns in batch.seen:
                entry = Entry(is_dir, inode, size, mtime_ns)
                self.rows.setdefault(directory, {})[name] = entry

    def flush(self) -> None:
        """Do nothing: all is applied at once."""

    def listing(self, directory: str) -> dict[str, Entry]:
        """Return the rows of the entries of a directory by name."""
        with self._lock:
            return dict(self.rows.get(directory, {}))

    def below(self, directory: str) -> list[str]:
        """Return the directories at or below one that have rows for entries."""
        with self._lock:
            return self._below(directory)

    def _below(self, directory: str) -> list[str]:
        inner = directory if directory == "/" else directory + "/"
        return [each for each in self.rows if each == directory or each.startswith(inner)]
