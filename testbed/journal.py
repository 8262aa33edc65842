"""What was done to the machine, and how each of it is undone.

A journal is a file of JSON lines in `FOLDER`, one for each thing done, written before it is done.
`undo` goes through it backwards; what is not there any more is passed over.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from . import processes

#: Where journals are, and sockets: their paths may not be long.
FOLDER = Path("/run/pilotage-testbed")


class Journal:
    """The things done for one bed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        """Return the name of the bed."""
        return self.path.stem

    def write(self, kind: str, what: str) -> None:
        """Note a thing that is to be undone."""
        with self.path.open("a") as file:
            file.write(json.dumps([kind, what]) + "\n")

    def read(self) -> list[tuple[str, str]]:
        """Return what was done, the first first."""
        lines = self.path.read_text().splitlines()
        return [(kind, what) for kind, what in map(json.loads, lines)]

    def undo(self) -> None:
        """Undo everything, the last first, and remove the journal."""
        for kind, what in reversed(self.read()):
            UNDO[kind](what)
        self.path.unlink()


def every() -> Iterator[Journal]:
    """Yield the journals of this machine."""
    yield from (Journal(path) for path in sorted(FOLDER.glob("*.journal")))


def _end_process(what: str) -> None:
    processes.Process.parse(what).end()


def _end_warden(what: str) -> None:
    warden = processes.Process.parse(what)
    if warden.alive and warden.pid != os.getpid():
        processes.end(processes.below(warden.pid))
        warden.end()


def _remove_file(what: str) -> None:
    Path(what).unlink(missing_ok=True)


def _remove_folder(what: str) -> None:
    shutil.rmtree(what, ignore_errors=True)


def _remove_user(what: str) -> None:
    processes.end(processes.of_user(what))
    _quietly("userdel", what)


def _remove_network(what: str) -> None:
    _quietly("ip", "netns", "delete", what)


def _remove_link(what: str) -> None:
    _quietly("ip", "link", "delete", what)


def _unmount(what: str) -> None:
    _quietly("umount", "--lazy", what)


def _quietly(*argv: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        subprocess.run(argv, check=False, capture_output=True)


UNDO: dict[str, Callable[[str], None]] = {
    "warden": _end_warden,
    "process": _end_process,
    "file": _remove_file,
    "folder": _remove_folder,
    "user": _remove_user,
    "network": _remove_network,
    "link": _remove_link,
    "mount": _unmount,
}
