"""Orders for payloads in a sandbox, where nothing of the pilot is there unless it is named."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Any

#: Variables that mean something of this machine only.
_OURS = frozenset({"BASH_ENV", "HOME", "HOSTNAME", "LOGNAME", "SHELL", "TMPDIR", "USER"})
_SYSTEM = ("/usr/", "/opt/")


def complete(
    launch: Mapping[str, Any], env: Mapping[str, str], programs: Collection[str]
) -> dict[str, Any]:
    """Name in an order what the payload needs of the pilot: environment and programs."""
    order = dict(launch)
    sandbox = order.get("sandbox")
    if not sandbox or sandbox.get("kind", "none") == "none":
        return order
    argv = order["argv"]
    shown = [word for word in argv if word in programs]
    if argv[0] == sys.executable and not sandbox.get("image"):
        shown += sorted(_python())
    order["sandbox"] = {**sandbox, "readable": [*sandbox.get("readable", ()), *shown]}
    if order.get("inherit"):
        order["env"] = {**_passed(env, image=bool(sandbox.get("image"))), **order["env"]}
    return order


def _passed(env: Mapping[str, str], *, image: bool) -> dict[str, str]:
    """Choose what of the environment means something inside."""
    hidden = _OURS | ({"PATH", "LD_LIBRARY_PATH"} if image else set())
    return {name: value for name, value in env.items() if name not in hidden}


def _python() -> set[str]:
    """List the folders of this interpreter, which may be a virtual environment."""
    roots = {sys.prefix, sys.base_prefix}
    return {root for root in roots if not f"{root}/".startswith(_SYSTEM)}
