"""What a person has: `ssh`, `scp` and `sbatch`, by one connection that stays."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

#: What jobs are called in the queue.
_NAME = "plain"
_GLANCE_S = 0.1
_SBATCH = ("sbatch", "--parsable", f"--job-name={_NAME}", "--output=/dev/null")


class Login:
    """A login node by OpenSSH alone."""

    def __init__(self, config: Path, host: str, home: Path, scratch: Path) -> None:
        """Connect once; everything after goes by this connection."""
        self._host = host
        self._home = home
        self._options = ["-F", str(config), "-o", f"ControlPath={scratch / 'ctl'}"]
        _run(["ssh", *self._options, "-M", "-N", "-f", "-o", "ControlPersist=yes", host])

    def __enter__(self) -> Self:
        """Use it in a `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up."""
        _run(["ssh", *self._options, "-O", "exit", self._host])

    def ssh(self, command: str) -> str:
        """Run a command there."""
        return _run(["ssh", *self._options, self._host, command])

    def copy(self, files: Sequence[Path], folder: str) -> None:
        """Bring files to a folder below the home there."""
        _run(["scp", "-q", *self._options, *map(str, files), f"{self._host}:{folder}/"])

    def fetch(self, folder: str, target: Path) -> None:
        """Bring all files of a folder there home."""
        _run(["scp", "-q", "-r", *self._options, f"{self._host}:{folder}", str(target)])

    # -- jobs ------------------------------------------------------------------------------------

    def submit(self, commands: Sequence[str], *, at_once: int = 1) -> None:
        """Have each submitted by a call of `ssh` and of `sbatch` of its own."""
        lines = [f"{' '.join(_SBATCH)} --wrap '{command}'" for command in commands]
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(self.ssh, lines))

    def wait(self) -> None:
        """Wait until all have run."""
        while self.ssh(f"squeue --noheader --name={_NAME} --states=PENDING,RUNNING"):
            time.sleep(_GLANCE_S)

    def loop(self, count: int, *, at_once: int = 1) -> float:
        """Submit jobs that are held by loops of `sbatch` on the login node; return their rate."""
        one = " ".join([*_SBATCH, "--hold", "--wrap", "true"])
        share = count // at_once
        loop = f"for i in $(seq {share}); do {one} > /dev/null; done"
        begun = time.monotonic()
        self.ssh(" & ".join([loop] * at_once) + " & wait")
        rate = at_once * share / (time.monotonic() - begun)
        self.ssh(f"scancel --name={_NAME}")
        return rate


def _run(argv: list[str]) -> str:
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{argv}: {done.stderr.strip()}")
    return done.stdout
