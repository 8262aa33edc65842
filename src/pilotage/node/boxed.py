"""Orders for payloads in a sandbox, which shows only the named folders of the node."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Variables that mean something of this machine only.
_OURS = frozenset({"BASH_ENV", "HOME", "HOSTNAME", "LOGNAME", "SHELL", "TMPDIR", "USER"})
_SYSTEM = ("/usr/", "/opt/")


@dataclass(frozen=True)
class Folders:
    """Folders of the node that the site shows to payloads."""

    readable: Sequence[str] = ()
    writable: Sequence[str] = ()

    def around(self, folder: str) -> str:
        """Name the one that a folder lies in; empty if there is none."""
        return _around(folder, (*self.readable, *self.writable))

    def how(self, folder: str) -> str:
        """Return how a folder is shown: `writable`, `readable`, or empty if it is not."""
        if _around(folder, self.writable):
            return "writable"
        return "readable" if _around(folder, self.readable) else ""


NO_FOLDERS = Folders()


def _around(folder: str, shown: Sequence[str]) -> str:
    inside = os.path.realpath(folder) + os.sep
    tops = ((one, os.path.realpath(one).rstrip(os.sep) + os.sep) for one in shown)
    return next((one for one, top in tops if inside.startswith(top)), "")


def complete(
    launch: Mapping[str, Any],
    env: Mapping[str, str],
    programs: Collection[str],
    folders: Folders = NO_FOLDERS,
) -> dict[str, Any]:
    """Name in an order what the payload needs of the node: environment, programs, folders."""
    order = dict(launch)
    sandbox = order.get("sandbox")
    if not sandbox or sandbox.get("kind", "none") == "none":
        return order
    argv = order["argv"]
    shown = [word for word in argv if word in programs]
    if argv[0] == sys.executable and not sandbox.get("image"):
        shown += sorted(_python())
    order["sandbox"] = {
        **sandbox,
        "readable": [*sandbox.get("readable", ()), *folders.readable, *shown],
        "writable": [*sandbox.get("writable", ()), *folders.writable],
    }
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
