"""What the store knows of files, for the file source."""

from __future__ import annotations

import threading

from pilotage.base import text
from pilotage.event.file.model import Entry
from pilotage.store import Db


class StoredFiles:
    """The `file` table, read side."""

    def __init__(self, db: Db) -> None:
        """Read through a connection of its own."""
        self._db = db
        self._lock = threading.Lock()

    def listing(self, directory: str) -> dict[str, Entry]:
        """Return the rows of the entries of a directory by name."""
        with self._lock:
            rows = self._db.rows("file_listing", dir=text.store_path(directory))
        return {
            text.load_path(name): Entry(bool(is_dir), inode, size, mtime_ns)
            for name, is_dir, inode, size, mtime_ns in rows
        }

    def below(self, directory: str) -> list[str]:
        """Return the directories at or below one that have rows for entries."""
        with self._lock:
            rows = self._db.rows("file_dirs_below", dir=text.store_path(directory))
        return [text.load_path(row[0]) for row in rows]
