"""A root with a Debian that has HTCondor, made once a machine."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import NotUp

#: Not in anybody's home: every user runs the commands that are in there.
CACHE = Path(os.environ.get("PILOTAGE_TESTBED_CACHE", "/var/cache/pilotage-testbed"))

#: The release of Debian: the first one after 11 with HTCondor.
RELEASE = "trixie"


#: The root.
ROOT = CACHE / f"condor-{RELEASE}"


def ready() -> Path:
    """Return the root; make it if it is not there, and say so, since that takes minutes."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with _alone():
        if not ROOT.exists():
            part = ROOT.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            _say(f"making a Debian {RELEASE} with HTCondor in {ROOT} (two minutes, once a machine)")
            begun = time.monotonic()
            _bootstrap(part)
            part.rename(ROOT)
            _say(f"made in {time.monotonic() - begun:.0f} s")
    return ROOT


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def _alone() -> Iterator[None]:
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _bootstrap(root: Path) -> None:
    _run("debootstrap", "--variant=minbase", RELEASE, str(root), _mirror())
    # Without it packages start their daemons.
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    install = ["apt-get", "install", "-y", "--no-install-recommends", "condor", "python3"]
    _run("chroot", str(root), *install)
    _run("chroot", str(root), "apt-get", "clean")


def _mirror() -> str:
    """Return where this machine gets its packages from."""
    what = "$(REPO_URI) $(RELEASE)"
    targets = _run("apt-get", "indextargets", "--format", what, "Created-By: Packages")
    for line in targets.splitlines():
        address, release = line.split()
        if "-" not in release:
            return address
    raise NotUp("apt knows no mirror of Debian.")


def _run(*argv: str) -> str:
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive", LC_ALL="C", PATH=os.defpath + ":/sbin")
    done = subprocess.run(
        argv, env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise NotUp(f"{argv[0]} failed: {' / '.join(last)}")
    return done.stdout
