"""A worker that stays: it calls one Python function again and again, without a process for each.

    python warm.py                  takes calls from the socket that is its standard input
    python warm.py --once FOLDER    makes the calls that lie in a folder, and ends

It needs nothing but the standard library of Python 3.9 and nothing of this package but `call.py`
beside it, since the function may want an interpreter of its own. A message is four bytes with
its length, a line of JSON about it, and a body of JSON. The first that a worker gets is its
recipe; each further one holds calls, and is answered with what they returned.

Calls run in the worker's own folder, which is emptied after each of them, or in a folder of their
job if they declare files. What they leave there and do not declare is removed and reported.
"""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import json
import linecache
import os
import resource
import signal
import socket
import stat
import sys
import time
from types import CoroutineType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from typing import Any, Callable

#: The largest result of one call, and of all calls of a job, as bytes of JSON.
MOST_RESULT_BYTES = 8 << 20
#: The longest traceback, in characters.
LONGEST = 8000
#: How many files that were left are named.
NAMED = 20
#: In less time no call makes a file; to look costs as much as the call.
QUICK_S = 2e-6
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
    for name in ("recipe.json", "calls.json", "folder.json"):
        path = os.path.join(folder, name)
        if name != "folder.json" or os.path.exists(path):
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                texts.append(file.read())
    function = Function(json.loads(texts[0]), Scratch(os.path.join(folder, "scratch")))
    body = function.answer(json.loads(texts[1]), texts[2] if texts[2:] else "")
    part = os.path.join(folder, "result.json.part")
    with open(part, "wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, os.path.join(folder, "result.json"))
    if function.failed:
        sys.exit(function.failed)


def serve() -> None:
    """Answer until the other side is gone."""
    channel = take_channel()
    # What a function starts is no worker.
    os.environ.pop("PILOTAGE_WORKER", None)
    # The caller is gone: results would be lost, and the calls could not be stopped.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    home = os.getcwd()
    first = receive(channel)
    if first is None:
        return
    scratch = Scratch(first[0]["scratch"]) if first[0].get("scratch") else None
    function = Function(json.loads(first[1]), scratch)
    while (message := receive(channel)) is not None:
        head, calls = message
        if scratch is None:
            os.chdir(home)
        become(head["key"], head["dir"])
        before = used()
        body = function.answer(json.loads(calls), head.get("folder", ""))
        for stream in (sys.stdout, sys.stderr):
            flush(stream)
        usage = [after - earlier for after, earlier in zip(used(), before)]
        usage.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        spoiled = scratch is not None and scratch.spoiled
        last = function.broken is not None or spoiled
        send(channel, {"usage": usage, "last": last, "failed": function.failed}, body)


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


class UnableError(Exception):
    """A call cannot be made, or what it wrote cannot be kept; the text says why."""


class Scratch:
    """The folder of a worker; it is empty when a call begins."""

    def __init__(self, path: str) -> None:
        self.path = path
        #: Whether it could not be emptied, so that another worker must take the next call.
        self.spoiled = False
        self.fd = -1
        self.make()

    def make(self) -> None:
        """Make the folder."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        self.empty()

    def enter(self) -> None:
        """Work there; a function may have gone elsewhere, or removed it."""
        try:
            os.chdir(self.path)
        except OSError:
            os.close(self.fd)
            self.make()
            os.chdir(self.path)

    def used(self) -> bool:
        """Return whether something was put there."""
        return bool(os.fstat(self.fd).st_mtime)

    def empty(self) -> list[str]:
        """Remove what a call has left; return the names."""
        try:
            left = sorted(os.listdir(self.fd))
        except FileNotFoundError:
            return []  # removed with all that was in it
        for name in left:
            remove(os.path.join(self.path, name))
        # From now on any other time means that something was put there.
        os.utime(self.fd, (0, 0))
        self.spoiled = bool(left and os.listdir(self.fd))
        return left


class Folder:
    """The folder of a job that declares files, as `folder.json` says."""

    def __init__(self, text: str) -> None:
        facts = json.loads(text)
        #: Where names of files begin, and where the calls run.
        self.root: str = facts["root"]
        self.cwd: str = facts["cwd"]
        #: The folder that has the inputs and gets the outputs; empty if they are in `root`.
        self.project: str = facts["project"]
        self.inputs: list[str] = facts["inputs"]
        self.outputs: list[str] = facts["outputs"]
        #: Whether all that is not declared is removed with the folder.
        self.own: bool = facts["own"]
        self.before: set[str] = set()

    def enter(self) -> None:
        """Have the inputs there, and work there."""
        try:
            if self.project or not self.own:
                # They were not looked for before.
                self.link([path for one in self.inputs for path in self.found(one)])
            for path in self.outputs:
                os.makedirs(os.path.dirname(self.inside(path)), exist_ok=True)
            os.chdir(self.cwd)
            self.before = set(files(self.root)) if self.own else set()
        except OSError as error:
            raise UnableError(f"its folder cannot be made: {error}") from error

    def link(self, found: list[str]) -> None:
        """Show the inputs where they are looked for; what is written, too, is copied."""
        written = {self.inside(path) for path in self.outputs}
        os.makedirs(self.root, exist_ok=True)
        # Folders before what is in them.
        for path in sorted(found, key=len):
            place = self.inside(path)
            if place != path and not os.path.lexists(place):
                os.makedirs(os.path.dirname(place), exist_ok=True)
                show(path, place, written)

    def found(self, pattern: str) -> list[str]:
        """List the files that an input means."""
        found = [pattern]
        if any(sign in pattern for sign in "*?[") and not os.path.exists(pattern):
            import glob

            # Signs in the name of the project's folder stand for themselves.
            name = self.name(pattern)
            top = glob.escape(pattern[: len(pattern) - len(name)])
            found = sorted(glob.glob(top + name, recursive=True))
        if not found or not os.path.exists(found[0]):
            raise UnableError(f"its input {self.name(pattern)} is not there")
        return found

    def name(self, path: str) -> str:
        """Name a file within the folder, as far as it is there."""
        top = f"{self.project or self.root}/"
        return path.removeprefix(top)

    def inside(self, path: str) -> str:
        """Return where a file of the project is for the calls."""
        return os.path.join(self.root, self.name(path)) if self.project else path

    def leave(self, *, well: bool) -> list[str]:
        """Put the outputs in their places if all went well; name what else is there."""
        os.chdir("/")
        try:
            for path in self.outputs if well else ():
                self.bring(path)
            mine = {self.inside(path) for path in self.outputs}
            return [name for name in files(self.root) if self.is_left(name, mine)]
        except OSError as error:
            raise UnableError(f"its outputs cannot be kept: {error}") from error
        finally:
            if self.project:
                remove(self.root)
                remove_empty(os.path.dirname(self.root))

    def is_left(self, name: str, mine: set[str]) -> bool:
        """Return whether a file is lost with the folder."""
        if not self.own or name in self.before:
            return False
        path = os.path.join(self.root, name)
        return not any(f"{path}/".startswith(f"{one}/") for one in mine)

    def bring(self, target: str) -> None:
        """Put an output in its place; nothing is done if it is there, or not at all."""
        source = self.inside(target)
        if os.path.realpath(source) == os.path.realpath(target) or not os.path.exists(source):
            return
        os.makedirs(os.path.dirname(target), exist_ok=True)
        # What a link leads to is not the call's own, and stays where it is.
        own = not os.path.islink(source)
        if own:
            lead_within(source, self.root)
        if unchanged(source, target):
            return
        if not os.path.isdir(source) or (own and not os.path.lexists(target)):
            move(source, target, own=own)
        else:
            # What links lead to is there as long as nothing else was moved.
            links = {name for name in files(source) if os.path.islink(os.path.join(source, name))}
            for name in [*sorted(links), *(one for one in files(source) if one not in links)]:
                path = os.path.join(target, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                inner = os.path.join(source, name)
                if not unchanged(inner, path):
                    move(inner, path, own=own and not os.path.islink(inner))


def show(path: str, place: str, written: set[str]) -> None:
    """Show a file or folder at another place, without what is written there."""
    if any(f"{place}/".startswith(f"{one}/") for one in written):
        copy(path, place)
    elif os.path.isdir(path) and any(one.startswith(f"{place}/") for one in written):
        os.mkdir(place)
        for name in os.listdir(path):
            show(os.path.join(path, name), os.path.join(place, name), written)
    else:
        os.symlink(path, place)


def files(top: str) -> list[str]:
    """List what is in a folder and is no folder."""
    return sorted(
        os.path.relpath(os.path.join(folder, name), top)
        for folder, _, names in os.walk(top)
        for name in names
    )


def move(source: str, target: str, *, own: bool) -> None:
    """Give what is our own another name; what is not, or cannot get it at once, is copied."""
    if own:
        try:
            os.replace(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        else:
            return
    part = os.path.join(os.path.dirname(target), f".{os.path.basename(target)[:200]}.part")
    try:
        copy(source, part)
        os.replace(part, target)
    finally:
        remove(part)


def lead_within(top: str, root: str) -> None:
    """Have links lead to what is beside them, not into a folder that will be gone."""
    gone = f"{os.path.realpath(root)}/"
    for folder, folders, names in os.walk(top):
        for name in (*folders, *names):
            path = os.path.join(folder, name)
            if os.path.islink(path) and os.path.isabs(os.readlink(path)):
                real = os.path.realpath(path)
                if real.startswith(gone):
                    os.unlink(path)
                    os.symlink(os.path.relpath(real, os.path.realpath(folder)), path)


def unchanged(source: str, target: str) -> bool:
    """Return whether a file is a copy of what is in its place, which is then no news to anybody."""
    try:
        facts = [os.lstat(path) for path in (source, target)]
    except FileNotFoundError:
        return False
    mine, there = ((one.st_mode, one.st_size, one.st_mtime_ns) for one in facts)
    return stat.S_ISREG(facts[0].st_mode) and mine == there


def copy(source: str, target: str) -> None:
    """Copy a file or a folder, with its time of change."""
    import shutil

    if os.path.isdir(source):
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)
        shutil.copystat(source, target)


def remove(path: str) -> None:
    """Remove a file or a folder, as far as that can be done."""
    import shutil

    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        os.unlink(path)
    except OSError:
        return  # a caller that needs it gone looks again


def remove_empty(path: str) -> None:
    """Remove a folder unless something is in it."""
    try:
        os.rmdir(path)
    except OSError:
        return  # it holds what the job wrote, or is gone


def printable(left: list[str]) -> list[str]:
    """Write names as Unicode, whatever bytes they have."""
    return [name.encode(errors="backslashreplace").decode() for name in left[:NAMED]]


def report(left: list[str]) -> None:
    """Write into the log of the job which files are gone."""
    names = ", ".join(repr(name) for name in left[:NAMED])
    more = f" and {len(left) - NAMED} more" if left[NAMED:] else ""
    words = f"pilotage: removed {names}{more}, not declared as outputs\n"
    os.write(2, words.encode(errors="backslashreplace"))


class Function:
    """The function of a recipe, loaded when it is first called."""

    def __init__(self, recipe: dict[str, str], scratch: Scratch | None = None) -> None:
        self.recipe = recipe
        self.scratch = scratch
        self.function: Callable[..., Any] | None = None
        #: Why it cannot be called at all.
        self.broken: dict[str, str] | None = None
        #: Why the job of the last calls has failed.
        self.failed = ""
        #: By the place of a call, the names of files that it left.
        self.left: dict[int, list[str]] = {}
        self.loop: asyncio.AbstractEventLoop | None = None

    def answer(self, order: dict[str, Any], folder: str = "") -> bytes:
        """Make calls, and write as JSON what each returned or raised."""
        self.failed, self.left = "", {}
        if self.scratch is not None:
            self.scratch.enter()
        if self.function is None:
            self.load()
        begun = time.perf_counter()
        if self.function is None:
            returns: list[Any] = [{"error": self.broken}] * len(order["calls"])
        elif folder:
            returns = self.run_in(Folder(folder), self.function, order)
        else:
            returns = self.run(self.function, order["calls"], order.get("within"))
        wall = time.perf_counter() - begun
        left = b',"left":' + _encode(self.left).encode() if self.left else b""
        return b'{"returns":' + write(returns) + b',"wall":%.7f' % wall + left + b"}"

    def load(self) -> None:
        """Load the file of the function; what goes wrong is the error of every call."""
        os.environ[LOADING] = "1"
        try:
            self.function = find(self.recipe)
        except BaseException as error:  # noqa: BLE001 - anybody's code: it must not end this
            self.broken = describe(error)
        finally:
            del os.environ[LOADING]

    def run_in(
        self, folder: Folder, function: Callable[..., Any], order: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Make the calls of a job that declares files; one that raises fails the job."""
        returns: list[dict[str, Any]] = []
        try:
            folder.enter()
            put_files(order, folder.root)
            scratch, self.scratch = self.scratch, None
            try:
                returns = self.run(function, order["calls"], None)
            finally:
                self.scratch = scratch
            raised = next((one["error"] for one in returns if "error" in one), None)
            if raised:
                self.failed = f"{raised['type']}: {raised['message']}"[:500]
            left = folder.leave(well=not raised)
        except UnableError as error:
            self.failed, left = str(error)[:500], []
        if left:
            report(left)
            self.left[0] = printable(left)
        return returns

    def run(
        self, function: Callable[..., Any], calls: list[Any], within: float | None
    ) -> list[dict[str, Any]]:
        """Make calls one after the other; with `within`, none starts after those seconds."""
        returns: list[dict[str, Any]] = []
        before = time.monotonic()
        end = before + (within or 1e12)
        scratch = self.scratch
        for args, kwargs in calls:
            try:
                value = function(*args, **kwargs)
                if value.__class__ is CoroutineType:
                    value = self.wait(value)
                returns.append({"ok": value})
            except BaseException as error:  # noqa: BLE001 - anybody's code: it must not end this
                returns.append({"error": describe(error)})
            now = time.monotonic()
            if now - before > QUICK_S and scratch is not None and scratch.used():
                self.tidy(scratch, len(returns) - 1)
            before = now
            if now > end:
                break
        if scratch is not None and scratch.used():
            self.tidy(scratch, len(returns) - 1)
        return returns

    def tidy(self, scratch: Scratch, call: int) -> None:
        """Remove what a call has left in the worker's folder, and say so."""
        if left := scratch.empty():
            report(left)
            self.left[call] = printable(left)

    def wait(self, value: Any) -> Any:  # noqa: ANN401 - anybody's coroutine
        """Run a coroutine to its end."""
        if self.loop is None:
            # Late, as all that a worker may not need: it should be there at once.
            import asyncio

            self.loop = asyncio.new_event_loop()
        return self.loop.run_until_complete(value)


def put_files(order: dict[str, Any], root: str) -> None:
    """Put paths in the place of the files among the arguments of calls."""
    if not order.get("files"):
        return
    from pathlib import Path

    for one in order["files"]:
        at: Any = order["calls"]
        *way, last = one["at"]
        for step in way:
            at = at[step]
        at[last] = Path(root, one["path"])


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
    if text and len(text) <= MOST_RESULT_BYTES:
        return text
    room = MOST_RESULT_BYTES
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
    """Read a number of bytes; fewer mean that the other side is gone."""
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
