"""A user of the machine, made for one bed: no start-up file of anybody else disturbs it."""

from __future__ import annotations

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .bed import Bed


@dataclass(frozen=True)
class User:
    """Somebody who logs in and submits jobs."""

    name: str
    home: Path
    uid: int
    gid: int


def make(bed: Bed) -> User:
    """Make a user whose home is in the folder of a bed."""
    name = f"pilotage-tester-{bed.name.rpartition('-')[2]}"
    home = bed.folder / "home"
    bed.made("user", name)
    # A password that nothing matches: a locked one would keep keys out as well.
    subprocess.run(
        ["useradd", f"--home-dir={home}", "--no-create-home", "--shell=/bin/bash", "--user-group",
         "--password=*", name],
        check=True, capture_output=True,
    )  # fmt: skip
    entry = pwd.getpwnam(name)
    home.mkdir()
    os.chown(home, entry.pw_uid, entry.pw_gid)
    return User(name, home, entry.pw_uid, entry.pw_gid)
