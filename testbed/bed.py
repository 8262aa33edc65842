"""What all beds share: a folder, a warden, and the wait until something is there."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from . import journal, processes
from .errors import NotUp
from .processes import Process
from .warden import Order, Warden

#: Where daemons are found.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Bed:
    """One system: up inside `with`, and gone without a trace after it."""

    #: What its folder and journal are named after.
    kind = "bed"

    def __init__(self, folder: Path | None = None) -> None:
        """Take the folder in which the bed makes one of its own, by default that of the system."""
        self._where = folder

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            raise NotUp("The test bed needs root.")
        journal.FOLDER.mkdir(mode=0o755, exist_ok=True)
        self.name = f"{self.kind}-{secrets.token_hex(3)}"
        self.journal = journal.Journal(journal.FOLDER / f"{self.name}.journal")
        self.folder = (self._where or Path(tempfile.gettempdir())) / f"pilotage-{self.name}"
        self.made("owner", str(Process.of(os.getpid())))
        self.made("folder", self.folder)
        self.folder.mkdir()
        # Also users who are not root look inside.
        self.folder.chmod(0o755)
        self._warden = Warden(self.journal)
        try:
            self.up()
        except BaseException:
            self._warden.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._warden.close()

    def up(self) -> None:
        """Start the system."""
        raise NotImplementedError

    @property
    def env(self) -> dict[str, str]:
        """What to put into the environment to use the system."""
        return {}

    def environment(self) -> dict[str, str]:
        """Return the whole environment of a user of the system."""
        base = {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8", "HOME": "/root", "USER": "root"}
        return base | self.env

    def run(self, *argv: str, timeout: float = 60) -> str:
        """Run a command of the system as root; return what it writes."""
        done = subprocess.run(
            argv, env=self.environment(), capture_output=True, text=True, check=False,
            timeout=timeout, cwd=self.folder,
        )  # fmt: skip
        if done.returncode:
            raise NotUp(f"{' '.join(argv)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def daemon(
        self, *argv: str, log: str, env: Mapping[str, str] | None = None, user: str | None = None
    ) -> Process:
        """Start a process that ends with the bed."""
        marked = self.environment() | dict(env or {}) | {processes.MARK: self.name}
        order = Order([*argv], marked, str(self.folder / log), user=user)
        return self._warden.start(order)

    def wait(self, ready: Callable[[], bool], what: str, log: str, timeout: float = 30) -> None:
        """Return once something is so."""
        deadline = time.monotonic() + timeout
        while not ready():
            if time.monotonic() > deadline:
                raise NotUp(f"{what} within {timeout:g} s. {self.tail(log)}")
            time.sleep(0.05)

    def tail(self, log: str) -> str:
        """Return the last lines of a log."""
        path = self.folder / log
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return "\n".join([f"{path}:", *lines[-10:]])

    def made(self, kind: str, what: str | Path) -> None:
        """Note something that is about to be made, to be undone after."""
        self.journal.write(kind, str(what))


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Say whether somebody listens on a port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0
