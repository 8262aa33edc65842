#!/usr/bin/env python3
"""Fail on helpers that exist once in `pilotage.base` and are written again elsewhere.

Durable files are written by `base.durable`, and tasks run in task groups or by `base.supervise`.
Programs for worker nodes have the standard library only, so that they are left out.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "pilotage"
#: Folders and files that may do it themselves: `base`, and what travels to worker nodes.
FREE = frozenset({"base", "node", "starter", "sandbox", "call.py", "warm.py"})
#: By call, what to use instead.
INSTEAD = {
    "fsync": "base.durable",
    "replace": "base.durable, or `os.rename` for a move that need not survive a power cut",
    "create_task": "a task group, or base.supervise",
    "ensure_future": "a task group, or base.supervise",
}

_JOINED = "the function that starts it waits for it or cancels it"
_OWNED = "one task of an object, which ends it when it closes"
_SHARED = "one task for all that ask for the same at once, by key"
_LEAVING = "in code that is being replaced"
#: Why a function may do it itself: by the name of its file, and its own.
EXCEPTIONS = {
    "carrier.py ClientConnection.open": _OWNED,
    "channel.py Channel.__aenter__": _OWNED,
    "channel.py Channel._listen": _JOINED,
    "channel.py to_the_end": _JOINED,
    "sync.py SyncHandler._load": _SHARED,
    "crate_file.py _pack": _LEAVING,
    "crate_file.py write": _LEAVING,
    "login.py HelperStart.begin": _OWNED,
    "login.py LoginHelper.__init__": _OWNED,
    "orders.py HeldJobs.while_wanted": _JOINED,
    "requests.py RequestQueue.ask": _OWNED,
    "dialer.py HubConnection.open": _JOINED,
    "local.py LocalSite._wind_down": _JOINED,
    "place.py BatchPlace._send": _JOINED,
    "program.py lines": _JOINED,
    "program.py run": _JOINED,
    "relay.py Relay._splice": _JOINED,
    "connection.py SiteConnection._doubt": _OWNED,
    "connection.py SiteConnection.bulk": _OWNED,
    "connection.py SiteConnection.run": _SHARED,
    "serve.py AgentSession._subscribe": _SHARED,
    "sftp.py Sftp._connection": _OWNED,
    "sftp_wire.py SftpConnection.begin": _OWNED,
    "pull.py SiteSender.__aenter__": _OWNED,
    "requests.py IdleChannel._part": _OWNED,
}


def main() -> int:
    """Print what is out of bounds; return 1 if there is something."""
    found = {where: name for path in sorted(SOURCE.rglob("*.py")) for where, name in uses(path)}
    for where in sorted(found.keys() - EXCEPTIONS.keys()):
        print(f"{where}: `{found[where]}`: use {INSTEAD[found[where]]}")
    for where in sorted(EXCEPTIONS.keys() - found.keys()):
        print(f"{where}: an exception that is not needed any more")
    return 1 if found.keys() ^ EXCEPTIONS.keys() else 0


def uses(path: Path) -> Iterator[tuple[str, str]]:
    """Give the functions of a file that call what they should not, and what."""
    if FREE.isdisjoint(path.relative_to(SOURCE).parts):
        for name, call in _walk(ast.parse(path.read_bytes()), ()):
            yield f"{path.name} {'.'.join(name)}", call


def _walk(node: ast.AST, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        above = (*above, node.name)
    if call := _call(node):
        yield above, call
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, above)


def _call(node: ast.AST) -> str:
    """Return the name of a call that is bounded; empty for anything else."""
    match node:
        case ast.Attribute(value=ast.Name(id="os"), attr="fsync" | "replace" as name):
            return name
        case ast.Attribute(attr="create_task" | "ensure_future" as name):
            return name
        case ast.Call(func=ast.Attribute(attr="replace"), args=[_], keywords=[]):
            # Of a path: text needs two arguments, and a date has keywords.
            return "replace"
        case _:
            return ""


if __name__ == "__main__":
    sys.exit(main())
