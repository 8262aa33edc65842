"""Apptainer: an image that runs as the pilot's user, as computing centres have it."""

from __future__ import annotations

import os
import shutil

from . import view
from .box import Box, NotPossibleError, Wrapped
from .bubblewrap import limited

_PASSED = ("APPTAINER_CACHEDIR", "APPTAINER_TMPDIR", "HOME", "PATH", "USER", "XDG_RUNTIME_DIR")


def program() -> str:
    """Name the program, which was called differently before."""
    return (
        "apptainer"
        if shutil.which("apptainer") or not shutil.which("singularity")
        else "singularity"
    )


def wrap(box: Box, marks: dict[str, str]) -> Wrapped:
    """Start apptainer, with the payload's environment in variables that it renames."""
    if not box.image or box.image.startswith("-"):
        raise NotPossibleError("apptainer needs an image")
    argv = [program(), "--silent", "exec", "--containall", "--cleanenv", "--no-privs"]
    argv += ["--no-home", "--no-mount", "home,cwd,tmp", "--writable-tmpfs"]
    argv += [] if box.network else ["--net", "--network", "none"]
    for one in view.asked(box):
        argv += ["--bind", _bind(one)]
    argv += ["--pwd", box.cwd, box.image, *limited(box.limits), *box.argv]
    prefix = "SINGULARITYENV_" if program() == "singularity" else "APPTAINERENV_"
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    given = {f"{prefix}{name}": value for name, value in {**box.env, **marks}.items()}
    return Wrapped(argv, {**passed, **given, **marks}, b"")


def _bind(one: view.Shown) -> str:
    if any(sign in one.path for sign in ",:"):
        raise NotPossibleError(f"apptainer cannot show {one.path!r}: a comma or colon is in it")
    return f"{one.path}:{one.path}:{'rw' if one.writable else 'ro'}"
