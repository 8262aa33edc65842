"""A worker that stays: it calls one Python function again and again, without a process for each.

    python warm.py                  takes calls from the socket that is its standard input
    python warm.py --once FOLDER    makes the calls that lie in a folder, and ends

It needs nothing but the standard library of Python 3.9 and nothing of this package but `call.py`
beside it, since the function may want an interpreter of its own. A message is four bytes with
its length, a line of JSON about it, and a body of JSON. The first that a worker gets is its
recipe; each further one holds calls, and is answered with what they returned.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import linecache
import os
import resource
import signal
import socket
import sys
import time
from types import CoroutineType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from typing import Any, Callable

#: The largest result of one call, and of all calls of a job, as bytes of JSON.
MOST = 8 << 20
#: The longest traceback, in characters.
LONGEST = 8000
#: While it is set, the file of a function is being loaded, and nothing in it may connect.
LOADING = "PILOTAGE_LOADING"

_PR_SET_PDEATHSIG = 1
_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode


def main() -> None:
    """Do what the command line asks for."""
    faulthandler.enable()
    folder = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.abspath(sys.path[0] or ".") == folder:
        # The function may import what lies beside its own file, not what lies beside this one.
        del sys.path[0]
    if sys.argv[1:2] == ["--once"]:
        once(sys.argv[2])
    else:
        serve()


def once(folder: str) -> None:
    """Make the calls that are written in a folder, and write there what they return."""
    texts = []
    for name in ("recipe.json", "calls.json"):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            texts.append(file.read())
    body = Function(json.loads(texts[0])).answer(json.loads(texts[1]))
    part = os.path.join(folder, "result.json.part")
    with open(part, "wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, os.path.join(folder, "result.json"))


def serve() -> None:
    """Answer until the other side is gone."""
    channel = take_channel()
    # What a function starts is no worker.
    os.environ.pop("PILOTAGE_WORKER", None)
    # Whoever asked for the calls will never hear of them, and nobody else could stop them.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    home = os.getcwd()
    first = receive(channel)
    function = Function(json.loads(first[1])) if first else None
    while function is not None:
        message = receive(channel)
        if message is None:
            return
        head, calls = message
        os.chdir(home)
        become(head["key"], head["dir"])
        before = used()
        body = function.answer(json.loads(calls))
        for stream in (sys.stdout, sys.stderr):
            flush(stream)
        usage = [after - earlier for after, earlier in zip(used(), before)]
        usage.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        send(channel, {"usage": usage, "last": function.broken is not None}, body)


def take_channel() -> socket.socket:
    """Move the socket away from standard input, which functions may read."""
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return channel


def become(key: str, folder: str) -> None:
    """Bear the name of the attempt, so that it can be found among all processes."""
    job, _, attempt = key.partition(".")
    os.environ.update(
        PILOTAGE_KEY=key, PILOTAGE_JOB=job, PILOTAGE_ATTEMPT=attempt, PILOTAGE_JOB_DIR=folder
    )
    try:
        with open("/proc/self/comm", "w", encoding="utf-8") as file:
            file.write(key)
    except OSError:
        return  # a sandbox may show it no processes


def flush(stream: Any) -> None:  # noqa: ANN401 - a function may have put anything in its place
    """Write down what a function said, unless it took the stream away."""
    try:
        stream.flush()
    except (AttributeError, OSError, ValueError):
        return


def used() -> list[float]:
    """Measure what this process and its children have used so far."""
    mine = resource.getrusage(resource.RUSAGE_SELF)
    theirs = resource.getrusage(resource.RUSAGE_CHILDREN)
    return [
        mine.ru_utime + theirs.ru_utime,
        mine.ru_stime + theirs.ru_stime,
        (mine.ru_inblock + theirs.ru_inblock) * 512,
        (mine.ru_oublock + theirs.ru_oublock) * 512,
    ]


class Function:
    """The function of a recipe, loaded when it is first called."""

    def __init__(self, recipe: dict[str, str]) -> None:
        self.recipe = recipe
        self.function: Callable[..., Any] | None = None
        #: Why it cannot be called at all.
        self.broken: dict[str, str] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    def answer(self, order: dict[str, Any]) -> bytes:
        """Make calls, and write as JSON what each returned or raised."""
        if self.function is None:
            self.load()
        begun = time.perf_counter()
        if self.function is None:
            returns: list[Any] = [{"error": self.broken}] * len(order["calls"])
        else:
            returns = self.run(self.function, order["calls"], order.get("within"))
        wall = time.perf_counter() - begun
        return b'{"returns":' + write(returns) + b',"wall":%.7f}' % wall

    def load(self) -> None:
        """Load the file of the function; what goes wrong is the error of every call."""
        os.environ[LOADING] = "1"
        try:
            self.function = find(self.recipe)
        except BaseException as error:  # noqa: BLE001 - anybody's code: it must not end this
            self.broken = describe(error)
        finally:
            del os.environ[LOADING]

    def run(
        self, function: Callable[..., Any], calls: list[Any], within: float | None
    ) -> list[dict[str, Any]]:
        """Make calls one after the other; with `within`, no further one after so many seconds."""
        returns: list[dict[str, Any]] = []
        end = time.monotonic() + (within or 1e12)
        for args, kwargs in calls:
            try:
                value = function(*args, **kwargs)
                if value.__class__ is CoroutineType:
                    value = self.wait(value)
                returns.append({"ok": value})
            except BaseException as error:  # noqa: BLE001 - anybody's code: it must not end this
                returns.append({"error": describe(error)})
            if time.monotonic() > end:
                break
        return returns

    def wait(self, value: Any) -> Any:  # noqa: ANN401 - anybody's coroutine
        """Run a coroutine to its end."""
        if self.loop is None:
            # Late, as all that a worker may not need: it should be there at once.
            import asyncio

            self.loop = asyncio.new_event_loop()
        return self.loop.run_until_complete(value)


def find(recipe: dict[str, str]) -> Callable[..., Any]:
    """Load the file of a recipe and return its function."""
    name, file, source = recipe["function"], recipe.get("file", ""), recipe.get("source", "")
    if file:
        sys.path.insert(0, os.path.dirname(file))
    module = load_source(source, file) if source else beside("call").load(file)
    function: Any = module
    for part in name.split("."):
        function = getattr(function, part, None)
    if not callable(function):
        raise TypeError(f"{file or 'its source'} has no function {name!r}")
    return function  # type: ignore[no-any-return]


def load_source(source: str, file: str) -> ModuleType:
    """Make a module of a text; `file` is what tracebacks call it."""
    module = ModuleType("pilotage_recipe")
    module.__file__ = file or "<function>"
    sys.modules[module.__name__] = module
    linecache.cache[module.__file__] = (
        len(source), None, source.splitlines(keepends=True), module.__file__,
    )  # fmt: skip
    exec(compile(source, module.__file__, "exec"), vars(module))  # noqa: S102 - what this is for
    return module


def beside(name: str) -> Any:  # noqa: ANN401 - a module
    """Load a file that lies beside this one, without its folder on the path."""
    import importlib.util

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"pilotage_{name}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def describe(error: BaseException) -> dict[str, str]:
    """Write an exception down; frames of this file say nothing about it."""
    import traceback

    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "pilotage_recipe", "__main__"):
        name = f"{kind.__module__}.{name}"
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    try:
        message = str(error)
        text = "".join(traceback.format_exception(kind, error, trace))
    except Exception as worse:  # noqa: BLE001 - anybody's `__str__`
        message = text = f"an exception that cannot be shown ({type(worse).__name__})"
    facts = {"type": name, "message": message[:LONGEST], "traceback": text[-LONGEST:]}
    return {key: one.encode(errors="backslashreplace").decode() for key, one in facts.items()}


def write(returns: list[dict[str, Any]]) -> bytes:
    """Write what calls returned as JSON; a value that is none becomes the error of its call."""
    try:
        text = _encode(returns).encode()
    except (TypeError, ValueError, RecursionError):
        text = b""
    if text and len(text) <= MOST:
        return text
    room = MOST
    texts = []
    for one in returns:
        text = write_one(one, room)
        room -= len(text)
        texts.append(text)
    return b"[" + b",".join(texts) + b"]"


def write_one(one: dict[str, Any], room: int) -> bytes:
    """Write what one call returned as JSON."""
    try:
        text = _encode(one).encode()
    except (TypeError, ValueError, RecursionError) as error:
        hint = "return numbers (not NaN), text, lists and dicts with text as keys; or write a file"
        return refuse("TypeError", f"the result is not JSON: {error}; {hint}")
    if len(text) > max(room, LONGEST):
        return refuse("ValueError", f"{len(text)} bytes of result are too many; write a file")
    return text


def refuse(kind: str, message: str) -> bytes:
    """Write the error of a call whose result cannot be passed on."""
    return _encode({"error": {"type": kind, "message": message, "traceback": ""}}).encode()


def receive(channel: socket.socket) -> tuple[dict[str, Any], bytes] | None:
    """Wait for a message; nothing means that the other side is gone."""
    length = read(channel, 4)
    data = read(channel, int.from_bytes(length, "big")) if length else b""
    if not data:
        return None
    head, _, body = data.partition(b"\n")
    return json.loads(head), body


def read(channel: socket.socket, count: int) -> bytes:
    """Read so many bytes; fewer mean that the other side is gone."""
    data = bytearray()
    while len(data) < count:
        part = channel.recv(count - len(data))
        if not part:
            return b""
        data += part
    return bytes(data)


def send(channel: socket.socket, head: dict[str, Any], body: bytes) -> None:
    """Send a message."""
    data = json.dumps(head).encode() + b"\n" + body
    channel.sendall(len(data).to_bytes(4, "big") + data)


if __name__ == "__main__":
    main()
