"""Users, a pilot with a secret and a small disk, for tests of what payloads may not do.

All of it is made by root and removed after the test; the pilot and its starter have a user of their
own, as they would on a worker node.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pilotage import payload
from pilotage.payload.sandbox import rule

#: What every machine has; the tests' own interpreter may be where only root can go.
PYTHON = "/usr/bin/python3"
#: Generous, as machines are noisy.
PATIENCE = 60.0
_SMALL_DISK = "64m"
_RULES = Path("/etc/sudoers.d")
_PILOT = """
import os, signal, sys, time
secret = open(os.environ["TOKEN_FILE"], "rb").read()
signal.signal(signal.SIGUSR1, lambda *_: open(sys.argv[1], "a").write("signalled"))
print("ready", flush=True)
time.sleep(600)
"""


class SandboxUsers:
    """A pilot's user, two users for payloads, and a folder that the pilot can write to."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.name, self.one, self.two = f"{name}p", f"{name}a", f"{name}b"
        self.work = root / "work"
        self.home = root / "home"
        self.token_file = self.home / "token"
        self.note = self.home / "note"
        self.marks = self.home / "marks"
        self.token = "pil_e_" + secrets.token_urlsafe(32)
        self.env = {
            "HOME": str(self.home),
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "XDG_RUNTIME_DIR": str(root / "run"),
            "TOKEN": self.token,
            "TOKEN_FILE": str(self.token_file),
        }

    @property
    def uid(self) -> int:
        return pwd.getpwnam(self.name).pw_uid

    def furnish(self) -> None:
        """Make the folders and the secret."""
        self.root.chmod(0o755)
        for folder, mode in ((self.work, 0o755), (self.home, 0o711), (self.root / "run", 0o700)):
            folder.mkdir(exist_ok=True)
            folder.chmod(mode)
            os.chown(folder, self.uid, pwd.getpwnam(self.name).pw_gid)
        self.write(self.token_file, self.token)
        self.write(self.note, "the pilot's own")

    def write(self, path: Path, text: str) -> None:
        """Write a file that is the pilot's alone."""
        path.write_text(text)
        path.chmod(0o600)
        os.chown(path, self.uid, -1)

    def command(self, *argv: str) -> list[str]:
        """Make a command that runs as the pilot's user, with the pilot's environment."""
        become = ["setpriv", "--reuid", self.name, "--regid", self.name, "--clear-groups", "--"]
        return [*become, "env", "-i", *(f"{k}={v}" for k, v in self.env.items()), *argv]

    @contextmanager
    def pilot(self) -> Iterator[int]:
        """Have a process of the pilot's user that holds the token in all the ways there are."""
        argv = self.command(PYTHON, "-c", _PILOT, str(self.marks))
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            try:
                yield process.pid
            finally:
                process.kill()

    def interpreter(self) -> Path:
        """Write a program that stands for Python, and runs it as the pilot's user."""
        path = self.root / "python"
        words = " ".join(f"'{word}'" for word in self.command(PYTHON))
        path.write_text(
            f'#!/bin/sh\nchown -R {self.name} {self.work}/starters\nexec {words} "$@"\n'
        )
        path.chmod(0o755)
        return path

    def starter(self) -> Path:
        """Copy the starter and its sandboxes to where the pilot's user can read them."""
        source = Path(payload.__file__).parent
        for name in ("starter", "sandbox"):
            shutil.copytree(source / name, self.root / "code" / name, dirs_exist_ok=True)
        return self.root / "code" / "starter"


@contextmanager
def ward() -> Iterator[SandboxUsers]:
    """Make users and all that belongs to them, where users have their homes."""
    root = Path(tempfile.mkdtemp(prefix="pilotage-ward-", dir="/home"))
    made = SandboxUsers(root, f"pt{os.getpid()}")
    names = (made.name, made.one, made.two)
    for name in names:
        subprocess.run(["useradd", "-M", "-d", str(made.home), name], check=True)
    try:
        made.furnish()
        with _small_disk(made), _gatekeeper(made):
            yield made
    finally:
        shutil.rmtree(f"/tmp/pilotage-users-{made.uid}", ignore_errors=True)
        for name in names:
            _kill_all(pwd.getpwnam(name).pw_uid)
            subprocess.run(["userdel", name], check=True, stderr=subprocess.DEVNULL)
        # What is mounted below would be removed, too.
        assert f" {root}/" not in Path("/proc/self/mountinfo").read_text()
        shutil.rmtree(root)


@contextmanager
def _small_disk(made: SandboxUsers) -> Iterator[None]:
    """Have payloads write where there is little to fill."""
    options = f"size={_SMALL_DISK},mode=755,uid={made.uid}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(made.work)], check=True)
    try:
        yield
    finally:
        _kill_all(made.uid)
        subprocess.run(["umount", "--lazy", str(made.work)], check=True)


@contextmanager
def _gatekeeper(made: SandboxUsers) -> Iterator[None]:
    """Install the gatekeeper and a rule, as an administrator would."""
    program, ours = Path(rule.GATEKEEPER), _RULES / f"pilotage-test-{made.name}"
    if not shutil.which("sudo"):
        yield
        return
    with _alone():
        before = program.read_text() if program.exists() else ""
        _install(program, rule.gatekeeper())
        ours.write_text(rule.sudoers(made.name, [made.one, made.two]))
        ours.chmod(0o440)
    try:
        subprocess.run(["visudo", "-cf", str(ours)], check=True, stdout=subprocess.DEVNULL)
        yield
    finally:
        with _alone():
            ours.unlink()
            if before:
                _install(program, before)
            elif not list(_RULES.glob("pilotage-test-*")):
                program.unlink(missing_ok=True)


@contextmanager
def _alone() -> Iterator[None]:
    """Keep other runs of tests away from the gatekeeper, of which a machine has one."""
    with (Path(tempfile.gettempdir()) / "pilotage-gatekeeper.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(program: Path, text: str) -> None:
    new = program.with_name(f".{program.name}-{os.getpid()}")
    new.write_text(text)
    new.chmod(0o755)
    new.rename(program)


def _kill_all(uid: int) -> None:
    """End every process of a user that was made for a test."""
    deadline = time.monotonic() + PATIENCE
    while found := list(_processes(uid)):
        assert time.monotonic() < deadline, found
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _processes(uid: int) -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            alive = folder.name.isdigit() and folder.stat().st_uid == uid
            if alive and (folder / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                yield int(folder.name)


def shift(monkeypatch: pytest.MonkeyPatch, made: SandboxUsers) -> None:
    """Have `Starter.open` run the starter as the pilot's user."""
    monkeypatch.setattr(sys, "executable", str(made.interpreter()))
    monkeypatch.setattr("pilotage.run.starter._PROGRAM", made.starter())
