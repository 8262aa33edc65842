"""Where a function is called: in a worker that stays, or in a process of its own."""

from __future__ import annotations

import hashlib
from typing import Any

from pilotage.base import text
from pilotage.run.model import Sandbox

#: Isolation through which a worker can be spoken with; any other passes on no socket.
_STAYING = frozenset({"none", "bubblewrap"})


def where(
    process: dict[str, Any], folder: str, owner: str, sandbox: Sandbox | None, *, stays: bool
) -> dict[str, Any]:
    """Say what is to be added to a process so that it is called in the right place."""
    if stays and (sandbox is None or sandbox.kind in _STAYING):
        return {"warm": kind(process, owner, sandbox)}
    # Such a sandbox shows nothing but the job's own folder.
    return {"argv": (*process["argv"], "--once", folder), "cwd": folder, "result": True}


def kind(process: dict[str, Any], owner: str, sandbox: Sandbox | None) -> str:
    """Name the kind of worker that a call needs; calls of different owners never share one."""
    facts = [process["argv"], process["env"], process["cwd"], process["files"]["recipe.json"]]
    return hashlib.blake2b(text.dump([*facts, owner, sandbox]).encode(), digest_size=12).hexdigest()
