"""Environments of the peers: each made once, with pinned versions, and none of it in ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def python(name: str, wanted: Sequence[str]) -> Path:
    """Return the interpreter of an environment with these words for `pip install`."""
    place = _cache() / f"{name}-{sys.version_info.major}.{sys.version_info.minor}"
    done, found = place / "installed", place / "bin" / "python"
    if not done.exists():
        print(f"installing {name} into an environment of its own", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        pip = [str(found), "-m", "pip", "--disable-pip-version-check", "-qq", "install", *wanted]
        subprocess.run(pip, check=True, stdout=sys.stderr)
        done.touch()
    return found


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "pilotage-bench"
