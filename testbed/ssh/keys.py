"""Keys, certificates and who trusts them, all in one folder."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make(path: Path) -> Path:
    """Make a pair of keys without a passphrase; return the private one."""
    _keygen("-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path))
    return path


def public(path: Path) -> str:
    """Return the public half of a key as one line."""
    return path.with_name(f"{path.name}.pub").read_text().strip()


def certify(path: Path, authority: Path, user: str, seconds: int) -> None:
    """Have an authority say, for some time, that a key is a user's."""
    _keygen(
        "-q", "-s", str(authority), "-I", path.name, "-n", user, "-V", f"-1m:+{seconds}s",
        str(path.with_name(f"{path.name}.pub")),
    )  # fmt: skip


def _keygen(*words: str) -> None:
    subprocess.run(["ssh-keygen", *words], check=True, capture_output=True)
