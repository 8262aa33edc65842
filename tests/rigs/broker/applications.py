"""What the site of a test offers: programs that leave a line when they begin and when they end.

The ledgers are outside of everything that Pilotage writes, and only ever appended to.
"""

from __future__ import annotations

import collections
import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

from tests.rigs.broker import toml

#: Each line is written at once, so that those of several jobs never mix.
_PROGRAM = """\
#!/bin/sh
line="$PILOTAGE_JOB $PILOTAGE_ATTEMPT $$"
echo "$line" >> '{place}/ledger'
{does}
echo "$line" >> '{place}/ends'
"""
_WAITS = """\
n=0
while [ ! -e '{place}/gate' ] && [ $n -lt 3000 ]; do sleep 0.1; n=$((n+1)); done
"""
#: What each program does between its two lines.
DOES = {
    "count": "echo counted",
    "sleep": 'sleep "$1"',
    "fail": '[ "$1" = 0 ] || exit "$1"',
    "gate": _WAITS,
    "stage": 'mkdir -p "$(dirname "$2")" && tr a-z A-Z < "$1" > "$2.new" && mv "$2.new" "$2"',
}
_LABEL = {"kind": "text", "pattern": "[A-Za-z0-9._-]+", "default": "x"}
_APPS: dict[str, dict[str, Any]] = {
    "count": {"argv": ["{label}"], "parameter": {"label": _LABEL}},
    "sleep": {
        "argv": ["{seconds}"],
        "parameter": {"seconds": {"kind": "number", "maximum": 600}},
    },
    "fail": {
        "argv": ["{status}"],
        "parameter": {"status": {"kind": "integer", "maximum": 255}},
    },
    "gate": {},
    "stage": {
        "argv": ["{source}", "{target}"],
        "parameter": {
            "source": {"kind": "path", "default": "data"},
            "target": {"kind": "path", "default": "out/data"},
        },
    },
}
#: Less than any queue of the test bed allows.
_LIMITS = {"nodes": 4, "tasks": 4, "cpus": 4, "time": "5m"}


class Line(NamedTuple):
    """One start of a program, or its end."""

    job: int
    attempt: int
    pid: int


class Programs:
    """The programs and applications of one site."""

    def __init__(self, root: Path, place: Path) -> None:
        """Take the folder of the agent, and one that worker nodes see."""
        self._root = root
        self.place = place
        self.gate = place / "gate"
        self.folder = place / "programs"
        self.folder.mkdir(parents=True)
        (root / "apps").mkdir()
        for name in ("ledger", "ends"):
            (place / name).touch()
            (place / name).chmod(0o666)
        for name, does in DOES.items():
            self.add(name, does, **_APPS[name])

    def add(self, name: str, does: str, **facts: Any) -> Path:
        """Offer a program as an application; `facts` are those of its file."""
        path = self.folder / name
        path.write_text(
            _PROGRAM.format(place=self.place, does=does.replace("{place}", str(self.place)))
        )
        path.chmod(0o755)
        return self.offer(name, path, **facts)

    def offer(self, name: str, program: Path, **facts: Any) -> Path:
        """Write the file of an application, whatever the program."""
        digest = hashlib.sha256(program.read_bytes()).hexdigest()
        told = {"executable": str(program), "sha256": digest, "limits": _LIMITS, **facts}
        file = self._root / "apps" / f"{name}.toml"
        file.write_text(toml.write(told))
        return file

    def starts(self) -> list[Line]:
        """Read each start of a program."""
        return _read(self.place / "ledger")

    def ends(self) -> list[Line]:
        """Read each end that a program has come to by itself."""
        return _read(self.place / "ends")

    def started(self) -> collections.Counter[tuple[int, int]]:
        """Count starts by job and attempt."""
        return collections.Counter((one.job, one.attempt) for one in self.starts())

    def running(self) -> list[int]:
        """Return the processes of these programs that there are, wherever they are."""
        mine = {one.pid for one in self.starts()} - {one.pid for one in self.ends()}
        return [pid for pid in mine if str(self.folder) in _words(pid)]


def _read(file: Path) -> list[Line]:
    return [Line(*map(int, line.split())) for line in file.read_text().splitlines()]


def _words(pid: int) -> str:
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return ""
