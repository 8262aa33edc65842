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

#: Who sees to it that the rest is undone: whoever asked for the bed, and its warden.
KEEPERS = ("owner", "warden")


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
        """Return what was done, the first first; nothing if all of it is undone."""
        try:
            lines = self.path.read_text().splitlines()
        except FileNotFoundError:
            return []
        return [(kind, what) for kind, what in map(json.loads, lines)]

    @property
    def left_over(self) -> bool:
        """Whether nobody is left who would undo it."""
        those = [processes.Process.parse(what) for kind, what in self.read() if kind in KEEPERS]
        return bool(those) and not any(each.alive for each in those)

    def undo(self) -> None:
        """Undo everything, the last first, and remove the journal."""
        for kind, what in reversed(self.read()):
            if kind in UNDO:
                UNDO[kind](what)
        self.path.unlink(missing_ok=True)


def every() -> Iterator[Journal]:
    """Yield the journals of this machine."""
    yield from (Journal(path) for path in sorted(FOLDER.glob("*.journal")))


def _end_process(what: str) -> None:
    processes.Process.parse(what).end()


def _remove_file(what: str) -> None:
    Path(what).unlink(missing_ok=True)


def _remove_folder(what: str) -> None:
    shutil.rmtree(what, ignore_errors=True)


def _remove_user(what: str) -> None:
    processes.end(processes.of_user(what))
    _quietly("userdel", "--force", what)


def _remove_network(what: str) -> None:
    _quietly("ip", "netns", "delete", what)


def _remove_link(what: str) -> None:
    _quietly("ip", "link", "delete", what)


def _remove_cgroup(what: str) -> None:
    """Remove a control group and those below; one that is in use, also by another bed, stays."""
    for folder, _, _ in os.walk(what, topdown=False):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()


def _quietly(*argv: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        subprocess.run(argv, check=False, capture_output=True)


UNDO: dict[str, Callable[[str], None]] = {
    "process": _end_process,
    "file": _remove_file,
    "folder": _remove_folder,
    "user": _remove_user,
    "network": _remove_network,
    "link": _remove_link,
    "cgroup": _remove_cgroup,
}
