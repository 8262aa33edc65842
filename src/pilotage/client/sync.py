"""The synchronous client and its executor: calls block their own thread only.

One thread, the pump, holds the connection.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload

from pilotage.base import errors
from pilotage.client import flow as flows
from pilotage.client import rest, where, work
from pilotage.client.core import Core, core
from pilotage.client.future import BatchFuture, Future
from pilotage.client.model import CallRange, Delivery, Ticket
from pilotage.client.options import Options, change
from pilotage.client.where import Address
from pilotage.job import machine
from pilotage.job.model import Ended, JobSpec

_log = logging.getLogger("pilotage.client")
_BULK = 1 << 18
_CONNECT_S = 10.0
_PAUSES_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
_AGAIN = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Pump:
    """Moves bytes between a core and the hub; any thread may add work."""

    def __init__(self, address: Address, core: Core) -> None:
        """Connect and log in, or raise what stands in the way."""
        self._address, self._core = address, core
        self._context = address.context()
        self._lock = threading.Lock()
        self._asleep = False
        self._closing = False
        self._give_up = 0.0
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.ExitStack() as undo:
            undo.callback(self._close_pipe)
            first = self._connect()
            undo.callback(first.close)
            self._log_in(first)
            undo.pop_all()
        self._thread = threading.Thread(
            target=self._run, args=(first,), name="pilotage-client", daemon=True
        )
        self._thread.start()

    # -- what any thread calls -------------------------------------------------------------------

    def add(self, spec: bytes, part: CallRange, fixed: int = 0) -> None:
        """Have calls made."""
        with self._lock:
            self._check()
            self._core.add(spec, part, fixed)
            eager = self._core.eager
        if eager:
            self._wake()

    def add_job(self, spec: bytes, ticket: Ticket) -> None:
        """Have a job run."""
        with self._lock:
            self._check()
            self._core.add_job(spec, ticket)
        self._wake()

    def add_call(self, spec: bytes, part: CallRange, binding: bytes) -> None:
        """Have a call made that is a job of its own."""
        with self._lock:
            self._check()
            self._core.add_call(spec, part, binding)
        self._wake()

    def ask(self, op: str, fields: dict[str, Any], ticket: Ticket) -> None:
        """Have a request answered."""
        with self._lock:
            self._check()
            self._core.ask(op, fields, ticket)
        self._wake()

    def drop(self, ticket: Ticket) -> None:
        """Forget a ticket."""
        with self._lock:
            self._core.drop(ticket)
        self._wake()

    def close(self, timeout: float = 30.0) -> None:
        """Send what is left and end; results that have not come never will."""
        with self._lock:
            self._closing = True
            self._give_up = time.monotonic() + timeout
        self._wake(sure=True)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _check(self) -> None:
        if self._core.refused is not None:
            raise self._core.refused
        if self._closing:
            raise errors.UsageError("the client is closed", hint="`pilotage.connect()` opens one")

    def _wake(self, *, sure: bool = False) -> None:
        if self._asleep or sure:
            self._asleep = False
            # It may be awake already, or have ended.
            with suppress(OSError):
                os.write(self._write, b".")

    # -- the thread ------------------------------------------------------------------------------

    def _run(self, first: socket.socket) -> None:
        channel: socket.socket | None = first
        tries = 0
        while not self._done():
            try:
                if channel is None:
                    channel = self._connect()
                self._converse(channel)
                tries = 0
            except (OSError, errors.Unavailable) as error:
                _log.info("the connection to %s is cut: %s", self._address.name, error)
            if channel is not None:
                tries = 0 if self._core.ready else tries
                channel.close()
                channel = None
            with self._lock:
                self._core.lost()
            if not self._done():
                self._sleep(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])
                tries += 1
        self._end()

    def _done(self) -> bool:
        if self._core.refused is not None:
            return True
        return self._closing and (not self._core.unsafe or time.monotonic() > self._give_up)

    def _end(self) -> None:
        error = self._core.refused or errors.Unavailable(
            "the client was closed before the result came", hint="the job continues"
        )
        with self._lock:
            left = list(self._core.fail(error))
        _hand_over(left)
        self._close_pipe()

    def _close_pipe(self) -> None:
        os.close(self._read)
        os.close(self._write)
        self._write = -1

    def _sleep(self, seconds: float) -> None:
        self._asleep = True
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        poll.poll(seconds * 1000)
        self._drain()

    def _connect(self) -> socket.socket:
        address = self._address
        try:
            channel = socket.create_connection((address.host, address.port), _CONNECT_S)
            channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                channel = self._context.wrap_socket(channel, server_hostname=address.host)
        except OSError as error:
            hint = "is the hub running, and is the address right?"
            raise errors.Unavailable(
                f"cannot reach the hub at {address.name}: {error}", hint=hint
            ) from error
        channel.setblocking(False)
        with self._lock:
            self._core.connected(time.monotonic())
        return channel

    def _log_in(self, channel: socket.socket) -> None:
        """Speak until the hub has let us in."""
        end = time.monotonic() + _CONNECT_S
        out = bytearray()
        while not self._core.ready and self._core.refused is None:
            self._step(channel, out, _CONNECT_S)
            if time.monotonic() > end:
                raise errors.Unavailable(f"the hub at {self._address.name} does not answer")
        if self._core.refused is not None:
            raise self._core.refused

    def _converse(self, channel: socket.socket) -> None:
        out = bytearray()
        while not self._done():
            self._step(channel, out)

    def _step(self, channel: socket.socket, out: bytearray, most: float = 30.0) -> None:
        now = time.monotonic()
        with self._lock:
            out += self._core.outgoing(now)
            wait = min(self._core.due(now), most)
            if self._core.stale(now):
                raise errors.Unavailable("the hub has not answered for long")
            self._asleep = True
        _send(channel, out)
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        poll.register(channel, select.POLLIN | (select.POLLOUT if out else 0))
        ready = {fd for fd, _ in poll.poll(wait * 1000)}
        self._asleep = False
        if self._read in ready:
            self._drain()
        if channel.fileno() in ready:
            self._receive(channel)

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._read, 4096)

    def _receive(self, channel: socket.socket) -> None:
        data = bytearray()
        closed = False
        try:
            while part := channel.recv(_BULK):
                data += part
            closed = True
        except _AGAIN:
            pass
        with self._lock:
            found = self._core.receive(bytes(data), time.monotonic()) if data else []
        _hand_over(found)
        if closed:
            raise errors.Unavailable("the hub has closed the connection")


def _send(channel: socket.socket, out: bytearray) -> None:
    """Send what can be sent now."""
    with suppress(*_AGAIN):
        while out:
            del out[: channel.send(out)]


def _hand_over(found: Iterable[Delivery]) -> None:
    for one in found:
        one.ticket.deliver(one)


T = TypeVar("T")
_POLL_S = 0.2


class Client:
    """A connection to a hub, and how the jobs that go through it are run."""

    def __init__(
        self, address: Address, pump: Pump | None = None, options: Options | None = None
    ) -> None:
        """Connect; `connect` is the usual way to get one."""
        self._address = address
        self._options = options or Options()
        self._definitions = work.Definitions(self._options)
        self._pump = pump or Pump(address, core(address))

    def options(self, **changes: Any) -> Client:  # noqa: ANN401 - as `Options` has them
        """Return a client over the same connection whose jobs are run in another way."""
        return Client(self._address, self._pump, change(self._options, changes))

    # -- work ------------------------------------------------------------------------------------

    @overload
    def submit(self, work: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]: ...

    @overload
    def submit(
        self, work: list[str] | tuple[str, ...] | JobSpec, /, **options: object
    ) -> Future[Ended]: ...

    def submit(self, work_: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have a function called, or a program or a job run; return its future.

        Keywords that a function does not take, and all that a program is given, are options.
        """
        future: Future[Any] = Future(self._pump.drop)
        definitions = self._definitions
        if kwargs and (changes := work.options_among(work_, kwargs)):
            definitions = definitions.changed(changes)
            kwargs = {name: one for name, one in kwargs.items() if name not in changes}
        if not callable(work_):
            self._pump.add_job(definitions.of_job(work_, args), future)
            return future
        spec, call, binding = definitions.of_call(work_, args, kwargs)
        if binding:
            self._pump.add_call(spec, CallRange(future, 0, [call]), binding)
        else:
            self._pump.add(spec, CallRange(future, 0, [call]))
        return future

    def map(
        self, function: Callable[..., T], /, *iterables: Iterable[Any],
        chunksize: int | Literal["auto"] = "auto", timeout: float | None = None,
    ) -> Iterator[T]:  # fmt: skip
        """Call a function on all elements, and give the results in their order."""
        rows = list(zip(*iterables))  # noqa: B905 - as the built-in
        batch: BatchFuture[T] = BatchFuture(len(rows))
        spec, calls, own = self._definitions.of_calls(function, rows)
        if calls:
            self._pump.add(
                spec, CallRange(batch, 0, calls), 0 if chunksize == "auto" else chunksize
            )
        for at, (each, call, binding) in enumerate(own):
            self._pump.add_call(each, CallRange(batch, at, [call]), binding)
        return batch.results(self._pump.drop, timeout)

    def gather(self, futures: Iterable[Future[T]]) -> list[T]:
        """Wait for all results, and return them in the order of the futures."""
        return [future.result() for future in futures]

    def flow(
        self, what: flows.What, params: Mapping[str, Any] | None = None, *, key: str = "",
        tag: str = "",
    ) -> flows.FlowRun:  # fmt: skip
        """Start a workflow: a file, its content, or a `pilotage.Flow`; the same key is the same."""
        return flows.FlowRun(self._address, flows.start(self._address, what, params, key, tag))

    # -- jobs ------------------------------------------------------------------------------------

    def jobs(
        self, *, state: str | None = None, name: str | None = None, owner: str | None = None,
        limit: int | None = None,
    ) -> list[dict[str, Any]]:  # fmt: skip
        """Read the newest jobs of the hub."""
        query = {"state": state, "name": name, "owner": owner, "limit": limit}
        return rest.jobs(self._address, query)

    def job(self, number: int) -> dict[str, Any]:
        """Read a job: its definition, its attempts, its result."""
        return rest.job(self._address, number)

    def cancel(self, *what: int | Future[Any]) -> None:
        """Cancel jobs, by number or by future."""
        numbers = [one for one in what if isinstance(one, int)]
        for one in what:
            if isinstance(one, Future):
                one.cancel()
        if numbers:
            asked: Future[Any] = Future(self._pump.drop)
            self._pump.ask("cancel", {"jobs": numbers}, asked)
            asked.result()

    def wait(self, *what: int | Future[Any], timeout: float | None = None) -> None:
        """Wait until all have ended, well or not."""
        end = None if timeout is None else time.monotonic() + timeout
        futures = [one for one in what if isinstance(one, Future)]
        late = bool(concurrent.futures.wait(futures, timeout).not_done)
        for number in (one for one in what if isinstance(one, int)):
            while not late and self.job(number)["state"] not in machine.FINAL:
                late = end is not None and time.monotonic() > end
                time.sleep(_POLL_S)
        if late:
            raise errors.TimedOut(f"not all have ended within {timeout:g} s")

    # -- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush submissions and disconnect; jobs continue."""
        self._pump.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()


def connect(url: str | None = None, token: str | None = None, ca: str | None = None) -> Client:
    """Connect to a hub: the one named, or PILOTAGE_HUB, or that of the project here."""
    return Client(where.find(url, token, ca))


class Executor(concurrent.futures.Executor):
    """Calls functions by way of a hub."""

    def __init__(self, client: Client | None = None, **options: Any) -> None:  # noqa: ANN401 - as `Options`
        """Use a client, or connect to the hub of the project here."""
        self._mine = client is None
        client = client or connect()
        self._base = client
        self._client = client.options(**options) if options else client
        self._lock = threading.Lock()
        self._away: set[concurrent.futures.Future[Any]] = set()
        self._over = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:  # noqa: ANN401
        """Have a function called."""
        with self._lock:
            self._check()
            future = self._client.submit(fn, *args, **kwargs)
            self._away.add(future)
        future.add_done_callback(self._forget)
        return future

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:  # fmt: skip
        """Call a function on all elements, and give the results in their order."""
        with self._lock:
            self._check()
        # One call at a time is what a pool does that knows no better.
        size = "auto" if chunksize == 1 else chunksize
        return self._client.map(fn, *iterables, chunksize=size, timeout=timeout)  # type: ignore[arg-type]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        """Accept no more calls, and wait for pending ones unless `wait` is false."""
        with self._lock:
            self._over = True
            left = list(self._away)
        if cancel_futures:
            for future in left:
                future.cancel()
        if wait:
            concurrent.futures.wait(left)
        if self._mine and wait:
            self._base.close()

    def _check(self) -> None:
        if self._over:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def _forget(self, future: concurrent.futures.Future[Any]) -> None:
        self._away.discard(future)
