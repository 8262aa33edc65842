"""Serve the hub's requests at a login node."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import pwd
import py_compile
import select
import socket
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

from .. import durable, frame
from . import news
from .command import Commands
from .files import Files, RequestError, error_reply
from .orders import Orders

#: What jobs have no use for.
_LEFT_OUT = ("__main__.py", "node/login/")


def make(archive: str) -> None:
    """Compile all of an archive that jobs need, once."""
    target = f"{archive}.{sys.implementation.cache_tag}"
    if os.path.exists(target):
        return
    try:
        with tempfile.TemporaryDirectory() as scratch:
            compiled = os.path.join(scratch, "compiled")
            with zipfile.ZipFile(archive) as packed, zipfile.ZipFile(compiled, "w") as made:
                for name in packed.namelist():
                    if not name.startswith(_LEFT_OUT):
                        made.writestr(*_entry(name, packed.read(name), scratch))
            with open(compiled, "rb") as file:
                data = file.read()
        durable.write(target, data, f"{target}.{os.getpid()}.part")
    except (OSError, py_compile.PyCompileError, zipfile.BadZipFile) as error:
        sys.stderr.write(f"jobs will begin more slowly: {error}\n")


def _entry(name: str, data: bytes, scratch: str) -> tuple[str, bytes]:
    """Compile a module; what programs of others read stays as it is."""
    if "/" not in name:
        return name, data
    source, target = (os.path.join(scratch, f"module.{end}") for end in ("py", "pyc"))
    with open(source, "wb") as file:
        file.write(data)
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(
        source, target, dfile=name, doraise=True, optimize=2, invalidation_mode=unchecked
    )
    with open(target, "rb") as file:
        return f"{name}c", file.read()


#: Bytes of one frame, at most: a listing of a large cluster, an order of a thousand jobs.
LIMIT = 1 << 28
_BULK = 1 << 18
#: Odd bytes in names arrive as half characters, which only ASCII can carry.
_encode = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode


class HubPipe:
    """Requests come in one at a time; replies go out whole, from any thread."""

    def __init__(self, inward: int, outward: int) -> None:
        self._inward = inward
        self._outward = outward
        self._turn = threading.Lock()

    def requests(self) -> Iterator[dict[str, Any]]:
        """Wait for requests until the hub has gone."""
        reader = frame.Reader(LIMIT)
        poll = select.poll()
        poll.register(self._inward, select.POLLIN)
        # Registered without events, it reports only that the reader has gone.
        poll.register(self._outward, 0)
        while not any(fd == self._outward for fd, _ in poll.poll()):
            data = os.read(self._inward, _BULK)
            if not data:
                return
            yield from reader.feed(data)

    def say(self, message: dict[str, Any]) -> None:
        """Send a frame; that a hub has gone is noticed where requests are read."""
        try:
            data = frame.pack(_encode(message), LIMIT)
        except frame.FrameError as error:
            data = frame.pack(_encode({**_stub(message), "error": str(error), "kind": "other"}))
        with self._turn, contextlib.suppress(OSError):
            view = memoryview(data)
            while view:
                view = view[os.write(self._outward, view) :]


def _stub(message: dict[str, Any]) -> dict[str, Any]:
    return {"n": message["n"]} if "n" in message else {}


_USAGE = 2
#: Commands that run at once, and other requests that are served at once.
_COMMANDS = 32
_OTHERS = 16

_Asked = Mapping[str, Any]


def main(words: Sequence[str]) -> int:
    """Serve the hub until it goes."""
    if len(words) != 1:
        sys.stderr.write("usage: login ROOT\n")
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
    hand = LoginHelper(root, talk)
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


class LoginHelper:
    """All operations by name."""

    def __init__(self, root: str, talk: HubPipe) -> None:
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
            threading.Thread(target=make, args=(archive,), daemon=True).start()
        news.start(news.News(self._news, self._talk.say), self.commands.collect)
        for asked in self._talk.requests():
            pool = self._runs if asked.get("op") == "run" else self._others
            pool.submit(self._serve, asked)

    def _serve(self, asked: _Asked) -> None:
        try:
            operation = self._ops.get(str(asked.get("op")))
            if operation is None:
                raise RequestError("usage", f"there is no operation {asked.get('op')!r}")
            reply: dict[str, Any] = {"ok": operation(asked)}
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is the reply
            reply = error_reply(error)
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


def _take_streams() -> HubPipe:
    """Keep the streams to ourselves: what else is written goes where errors go."""
    inward, outward = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return HubPipe(inward, outward)


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
