"""Files: what happens in directories comes in, batches of events and rows go out.

In come the kernel's own records where it has any, and listings of directories where it has not: at
start, after an overflow, and again and again on file systems that other machines write to. Out go
`Batch`es: events, and what is known of each file from then on. A batch is committed as one, so that
after a crash a scan finds exactly what was not yet taken.

    queue ──▶ marks ──▶ live ──┐                  ┌──▶ complete (waits till a file is whole) ──┐
    scan ───▶ survey ──────────┴──▶ watches, tree ┴────────────────────────────────▶ outbox ──┴─▶
"""

from __future__ import annotations

from pilotage.event.file.model import Batch, Entry, Known, Options, Scope, Sink
from pilotage.event.file.source import FileSource

__all__ = ["Batch", "Entry", "FileSource", "Known", "Options", "Scope", "Sink"]
