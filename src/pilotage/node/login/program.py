"""From requests to replies."""

from __future__ import annotations

import hashlib
import os
import platform
import pwd
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

from .. import durable, frame
from . import news, quick
from .command import Commands
from .files import Files
from .orders import Orders
from .talk import Talk
from .trouble import Trouble, told

_USAGE = 2
#: Commands that run at once, and other requests that are served at once.
_COMMANDS = 32
_OTHERS = 16

_Asked = Mapping[str, Any]


def main(words: Sequence[str]) -> int:
    """Serve the hub until it goes."""
    if len(words) != 1:
        sys.stderr.write("usage: hand ROOT\n")
        return _USAGE
    os.umask(0o077)
    talk = _take_streams()
    root = os.path.realpath(os.path.expanduser(words[0]))
    try:
        for name in ("bin", "s", "news", "cache", "trash"):
            durable.folder(os.path.join(root, name))
    except OSError as error:
        # Each request that needs it will say so; there may be space again in a while.
        sys.stderr.write(f"cannot make {error.filename}: {error.strerror}\n")
    hand = Hand(root, talk)
    code = 0
    try:
        hand.serve()
    except (OSError, frame.FrameError) as error:
        sys.stderr.write(f"the hub cannot be understood: {error}\n")
        code = 1
    finally:
        hand.commands.close()
    sys.stderr.flush()
    # Threads may wait for a file server that is gone.
    os._exit(code)


class Hand:
    """All operations by name."""

    def __init__(self, root: str, talk: Talk) -> None:
        self.commands = Commands(root)
        self._root = root
        self._talk = talk
        self._news = os.path.join(root, "news")
        orders, files = Orders(root), Files(root)
        self._orders = orders
        self._ops: dict[str, Callable[[_Asked], dict[str, Any]]] = {
            "hello": self._hello,
            "run": self.commands.run,
            "prepare": orders.prepare,
            "fence": orders.fence,
            "drop": orders.drop,
            "ack": self._acknowledge,
            "read": files.read,
            "tails": files.tails,
            "stat": files.stat,
            "list": files.list,
            "have": self._have,
            "sweep": self._sweep,
            "relay": self._relay,
        }
        self._runs = ThreadPoolExecutor(_COMMANDS)
        self._others = ThreadPoolExecutor(_OTHERS)

    def serve(self) -> None:
        """Take requests until there are no more."""
        self._orders.tidy()
        if archive := _archive():
            threading.Thread(target=quick.make, args=(archive,), daemon=True).start()
        news.start(news.News(self._news, self._talk.say), self.commands.collect)
        for asked in self._talk.requests():
            pool = self._runs if asked.get("op") == "run" else self._others
            pool.submit(self._serve, asked)

    def _serve(self, asked: _Asked) -> None:
        try:
            operation = self._ops.get(str(asked.get("op")))
            if operation is None:
                raise Trouble("usage", f"there is no operation {asked.get('op')!r}")
            reply: dict[str, Any] = {"ok": operation(asked)}
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is the reply
            reply = told(error)
        self._talk.say({"n": asked.get("n"), **reply})

    def _hello(self, _asked: _Asked) -> dict[str, Any]:
        space = os.statvfs(self._root)
        return {
            "host": socket.gethostname(),
            "user": _user(),
            "home": os.path.expanduser("~"),
            "root": self._root,
            "python": platform.python_version(),
            "time": time.time(),
            "free": space.f_bavail * space.f_frsize,
            "pid": os.getpid(),
            "version": _version(),
        }

    def _acknowledge(self, asked: _Asked) -> dict[str, Any]:
        news.acknowledge(self._news, asked["names"])
        return {}

    def _have(self, asked: _Asked) -> dict[str, Any]:
        from . import cache

        return dict(cache.have(self._root, asked["digests"]))

    def _sweep(self, asked: _Asked) -> dict[str, Any]:
        from . import cache

        return dict(cache.sweep(self._root, asked["bound"]))

    def _relay(self, asked: _Asked) -> dict[str, Any]:
        from . import relay

        return relay.opened(str(asked.get("host") or ""), int(asked["port"]), asked.get("listen"))


def _take_streams() -> Talk:
    """Keep the streams to ourselves: what else is written goes where errors go."""
    inward, outward = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return Talk(inward, outward)


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _archive() -> str:
    """Name the archive that runs; empty if we are not in one."""
    path = os.path.abspath(sys.argv[0])
    return path if path.endswith(".pyz") and os.path.isfile(path) else ""


def _version() -> str:
    """Return the digest of the archive that runs; empty if we are not in one."""
    archive = _archive()
    if not archive:
        return ""
    with open(archive, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
