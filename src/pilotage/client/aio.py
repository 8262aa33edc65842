"""The asynchronous client: the same methods as coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, overload

from pilotage.base import errors
from pilotage.client import flow as flows
from pilotage.client import rest, where, work
from pilotage.client.carrier import ClientConnection
from pilotage.client.core import core
from pilotage.client.future import tell, value
from pilotage.client.model import CallRange, Delivery, Return, Ticket
from pilotage.client.options import Options, change
from pilotage.client.where import Address
from pilotage.job import machine
from pilotage.job.model import Ended, JobSpec

T = TypeVar("T")
_POLL_S = 0.2


class AsyncFuture(asyncio.Future[T], Ticket):
    """The result of one call or job, to be awaited."""

    def __init__(self, drop: Callable[[Ticket], None]) -> None:
        """Begin; `drop` is called when the result is no longer wanted."""
        super().__init__(loop=asyncio.get_running_loop())
        self._drop = drop

    @property
    def job(self) -> int | None:
        """The job that holds the call; none before the hub has it."""
        return self.parcel.job if self.parcel else None

    def cancel(self, msg: Any = None) -> bool:  # noqa: ANN401 - as in asyncio
        """Want the result no more; the job is cancelled unless other calls are in it."""
        if not super().cancel(msg):
            return False
        self._drop(self)
        return True

    def deliver(self, found: Delivery) -> None:
        """Take the result."""
        if self.done():
            return
        if found.left:
            self.left = found.left
            tell(found)
        if found.error is not None:
            self.set_exception(found.error)
        elif found.returns and found.returns[0].error is not None:
            self.set_exception(found.returns[0].error.exception(found.job))
        else:
            self.set_result(found.returns[0].ok if found.returns else found.answer)


class AsyncBatch(Ticket, Generic[T]):
    """The results of many calls, in order."""

    def __init__(self, count: int) -> None:
        self._found: list[Return | Delivery | None] = [None] * count
        self._news = asyncio.Event()

    def deliver(self, found: Delivery) -> None:
        """Take some of the results."""
        if found.left:
            tell(found)
        some = found.returns if found.error is None else [found] * found.count
        self._found[found.at : found.at + len(some)] = some
        self._news.set()

    async def results(self, drop: Callable[[Ticket], None]) -> AsyncIterator[T]:
        """Give the results in order, each as soon as it and all before it are there."""
        try:
            for at in range(len(self._found)):
                while self._found[at] is None:
                    self._news.clear()
                    await self._news.wait()
                yield value(self._found[at])
                self._found[at] = None
        finally:
            drop(self)


class AsyncClient:
    """A connection to a hub, in an `async with` block."""

    def __init__(
        self, url: str | None = None, token: str | None = None, ca: str | None = None
    ) -> None:
        """Find the hub: the one named, or PILOTAGE_HUB, or that of the project here."""
        self._set_up(where.find(url, token, ca), Options(), None)

    def _set_up(self, address: Address, options: Options, carrier: ClientConnection | None) -> None:
        self._address, self._options, self._open = address, options, carrier
        self._definitions = work.Definitions(options)

    def options(self, **changes: Any) -> AsyncClient:  # noqa: ANN401 - as `Options` has them
        """Return a client over the same connection whose jobs are run in another way."""
        other = AsyncClient.__new__(AsyncClient)
        other._set_up(self._address, change(self._options, changes), self._carrier)  # noqa: SLF001
        return other

    async def __aenter__(self) -> Self:
        carrier = ClientConnection(self._address, core(self._address))
        await carrier.open()
        self._open = carrier
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        await self.close()

    async def close(self) -> None:
        """Flush submissions and disconnect; jobs continue."""
        await self._carrier.close()

    @property
    def _carrier(self) -> ClientConnection:
        if self._open is None:
            hint = "use it in an `async with` block"
            raise errors.UsageError("the client is not open", hint=hint)
        return self._open

    # -- work ------------------------------------------------------------------------------------

    @overload
    def submit(
        self, work: Callable[..., T], /, *args: object, **kwargs: object
    ) -> AsyncFuture[T]: ...

    @overload
    def submit(
        self, work: list[str] | tuple[str, ...] | JobSpec, /, **options: object
    ) -> AsyncFuture[Ended]: ...

    def submit(self, work_: Any, /, *args: Any, **kwargs: Any) -> AsyncFuture[Any]:
        """Have a function called, or a program or a job run; await what it returns.

        Keywords that a function does not take, and all that a program is given, are options.
        """
        future: AsyncFuture[Any] = AsyncFuture(self._carrier.drop)
        definitions = self._definitions
        if kwargs and (changes := work.options_among(work_, kwargs)):
            definitions = definitions.changed(changes)
            kwargs = {name: one for name, one in kwargs.items() if name not in changes}
        if not callable(work_):
            self._carrier.add_job(definitions.of_job(work_, args), future)
            return future
        spec, call, binding = definitions.of_call(work_, args, kwargs)
        if binding:
            self._carrier.add_call(spec, CallRange(future, 0, [call]), binding)
        else:
            self._carrier.add(spec, CallRange(future, 0, [call]))
        return future

    def map(
        self, function: Callable[..., T], /, *iterables: Iterable[Any],
        chunksize: int | Literal["auto"] = "auto",
    ) -> AsyncIterator[T]:  # fmt: skip
        """Call a function on all elements, and give the results in their order."""
        rows = list(zip(*iterables))  # noqa: B905 - as the built-in
        batch: AsyncBatch[T] = AsyncBatch(len(rows))
        spec, calls, own = self._definitions.of_calls(function, rows)
        if calls:
            self._carrier.add(
                spec, CallRange(batch, 0, calls), 0 if chunksize == "auto" else chunksize
            )
        for at, (each, call, binding) in enumerate(own):
            self._carrier.add_call(each, CallRange(batch, at, [call]), binding)
        return batch.results(self._carrier.drop)

    async def gather(self, futures: Iterable[AsyncFuture[T]]) -> list[T]:
        """Wait for all results, and return them in the order of the futures."""
        return list(await asyncio.gather(*futures))

    async def as_completed(
        self, futures: Iterable[AsyncFuture[T]]
    ) -> AsyncIterator[AsyncFuture[T]]:
        """Give the futures in the order in which they are done."""
        left = set(futures)
        while left:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                yield one

    async def flow(
        self, what: flows.What, params: Mapping[str, Any] | None = None, *, key: str = "",
        tag: str = "",
    ) -> flows.AsyncFlowRun:  # fmt: skip
        """Start a workflow: a file, its content, or a `pilotage.Flow`; the same key is the same."""
        number = await asyncio.to_thread(flows.start, self._address, what, params, key, tag)
        return flows.AsyncFlowRun(self._address, number)

    # -- jobs ------------------------------------------------------------------------------------

    async def jobs(
        self, *, state: str | None = None, name: str | None = None, owner: str | None = None,
        limit: int | None = None,
    ) -> list[dict[str, Any]]:  # fmt: skip
        """Read the newest jobs of the hub."""
        query = {"state": state, "name": name, "owner": owner, "limit": limit}
        return await asyncio.to_thread(rest.jobs, self._address, query)

    async def job(self, number: int) -> dict[str, Any]:
        """Read a job: its definition, its attempts, its result."""
        return await asyncio.to_thread(rest.job, self._address, number)

    async def cancel(self, *what: int | AsyncFuture[Any]) -> None:
        """Cancel jobs, by number or by future."""
        numbers = [one for one in what if isinstance(one, int)]
        for one in what:
            if isinstance(one, AsyncFuture):
                one.cancel()
        if numbers:
            asked: AsyncFuture[Any] = AsyncFuture(self._carrier.drop)
            self._carrier.ask("cancel", {"jobs": numbers}, asked)
            await asked

    async def wait(self, *what: int | AsyncFuture[Any]) -> None:
        """Wait until all have ended, well or not."""
        futures = [one for one in what if isinstance(one, AsyncFuture)]
        if futures:
            await asyncio.wait(futures)
        for number in (one for one in what if isinstance(one, int)):
            while (await self.job(number))["state"] not in machine.FINAL:  # noqa: ASYNC110 - far away
                await asyncio.sleep(_POLL_S)
