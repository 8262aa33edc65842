"""Files: inotify records and directory scans come in, batches of events and rows go out.

Directories are scanned at start, after an overflow of the kernel's queue, and periodically on file
systems that other machines write to. A `FileBatch` has events and the new rows of the files; it is
committed as one, so that after a crash a scan finds exactly what was not committed.

    queue ──▶ marks ──▶ live ──┐                  ┌──▶ complete (waits till a file is whole) ──┐
    scan ───▶ survey ──────────┴──▶ watches, tree ┴────────────────────────────────▶ outbox ──┴─▶
"""

from __future__ import annotations

from pilotage.event.file.model import Entry, FileBatch, KnownFiles, Options, Sink, WatchScope
from pilotage.event.file.source import FileSource

__all__ = ["Entry", "FileBatch", "FileSource", "KnownFiles", "Options", "Sink", "WatchScope"]
