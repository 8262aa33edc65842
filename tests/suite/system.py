"""What tests need of the machine beside Python, and what happens when it is not there.

A test that needs a program or a device says so, with the marker `@pytest.mark.needs("sshfs")` or,
once it runs, with the fixture `needs("sshfs")`. Where that is missing the test is skipped and the
summary says so; with `CI=true` it fails, so that nothing goes untested unseen.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

#: Where programs are that are not for users to call.
ALSO = ("/usr/sbin", "/sbin", "/usr/lib/openssh")

#: Each lack that was met, with the number of tests that it cost.
met: Counter[str] = Counter()


def find(program: str) -> str | None:
    """Return the path of a program, also of one that is not for users to call."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *ALSO))
    return shutil.which(program, path=path)


def needs(*names: str) -> None:
    """Go on only if everything named is there; otherwise skip this test, or fail it in CI."""
    lacks = [lack for name in names if (lack := _lack(name)) is not None]
    if not lacks:
        return
    met.update(lacks)
    why = "; ".join(lacks)
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must run this test: {why}", pytrace=False)
    pytest.skip(why)


def summary() -> list[str]:
    """Return one line for each thing that was not there."""
    return [f"{lack}: {count} not run" for lack, count in sorted(met.items())]


def _lack(name: str) -> str | None:
    return SPECIAL[name]() if name in SPECIAL else _no_program(name)


def _no_program(name: str) -> str | None:
    return None if find(name) else f"no program {name} (see tools/apt-packages.txt)"


def _no_fuse() -> str | None:
    try:
        mode = Path("/dev/fuse").stat().st_mode
    except OSError as error:
        return f"no /dev/fuse ({error.strerror})"
    if mode & 0o006 != 0o006:
        return "/dev/fuse is not for every user (as root: chmod 0666 /dev/fuse, as udev does)"
    return _no_program("fusermount3")


def _no_root() -> str | None:
    return None if os.geteuid() == 0 else "not root"


#: What is more than a program of that name.
SPECIAL: dict[str, Callable[[], str | None]] = {"fuse": _no_fuse, "root": _no_root}
