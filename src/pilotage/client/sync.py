"""The synchronous client and its executor: calls block their own thread only."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload

from pilotage.base import errors
from pilotage.client import flow as flows
from pilotage.client import rest, where, work
from pilotage.client.core import core
from pilotage.client.future import BatchFuture, Future
from pilotage.client.model import CallRange
from pilotage.client.options import Options, change
from pilotage.client.pump import Pump
from pilotage.client.where import Address
from pilotage.job import machine
from pilotage.job.model import Ended, JobSpec

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
