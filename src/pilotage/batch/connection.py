"""The connection to a site: one login helper, kept alive and called within limits.

Commands are limited in number and rate, and a circuit breaker blocks them after failures.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio

from pilotage.base import errors, units
from pilotage.base.backoff import Backoff, Pauses
from pilotage.base.clock import Clock, WallClock, dice
from pilotage.batch.login import HelperInfo, HelperStart, LoginHelper, News
from pilotage.batch.model import SiteSettings
from pilotage.batch.shell.model import Shell
from pilotage.batch.system.model import BatchCommand, Output


class RateLimit:
    """Limits calls to a rate; one second's worth may come at once."""

    def __init__(self, rate: float) -> None:
        """Take turns in a second."""
        self._rate = rate
        self._most = max(1.0, rate)
        self._level = self._most
        self._at: float | None = None

    def take(self, now: float) -> float:
        """Take the next turn; return how long to wait for it."""
        passed = 0.0 if self._at is None else max(0.0, now - self._at)
        self._at = now
        self._level = min(self._most, self._level + passed * self._rate) - 1.0
        return max(0.0, -self._level / self._rate)


class CircuitBreaker:
    """Blocks calls after failures in a row, except for a trial now and then."""

    def __init__(
        self,
        chance: random.Random,
        *,
        most: int = 3,
        first: float = 5.0,
        longest: float = 300.0,
    ) -> None:
        """Take the number of failures that open it, the first pause and the longest."""
        self._chance = chance
        self._most, self._first, self._longest = most, first, longest
        #: Failures in a row.
        self.failures = 0
        #: When the first of them was.
        self.since: float | None = None
        self._again = 0.0
        #: Whether one is on its way to find out.
        self.trial = False
        self._words = ""

    def may(self, now: float) -> bool:
        """Return whether something may pass; if it is a trial, it is the only one."""
        if self.failures < self._most:
            return True
        if self.trial or now < self._again:
            return False
        self.trial = True
        return True

    def worked(self) -> None:
        """Note that the site has answered."""
        self.failures, self.since, self.trial, self._words = 0, None, False, ""

    def failed(self, now: float, words: str = "") -> None:
        """Note that the site has failed to answer."""
        self.failures += 1
        self.since = now if self.since is None else self.since
        self.trial, self._words = False, words
        if (over := self.failures - self._most) >= 0:
            pause = min(self._longest, self._first * 2.0 ** min(over, 20))
            # Sites share login nodes, and hubs their habits: jitter keeps them out of step.
            self._again = now + pause * self._chance.uniform(0.75, 1.25)

    def undecided(self) -> None:
        """Note that a trial had no result; another may follow at once."""
        self.trial = False

    def says(self, now: float) -> str:
        """Return why commands are blocked; empty if they are not."""
        if self.failures < self._most or self.since is None:
            return ""
        since = time.strftime("%H:%M", time.localtime(self.since))
        left = self._again - now
        again = f"next try in {units.for_people(left)}" if left > 0 else "trying again now"
        why = f" ({self._words})" if self._words else ""
        return f"has not answered since {since}{why}; {again}"


class CommandLimits:
    """Limits the commands to one site."""

    def __init__(
        self,
        name: str,
        *,
        at_once: int = 4,
        per_second: float = 20.0,
        clock: Clock | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """Name the site for what is said."""
        self._name = name
        self._clock = clock or WallClock()
        self._bucket = RateLimit(per_second)
        self._places = asyncio.Semaphore(at_once)
        self.breaker = CircuitBreaker(chance or dice())

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn; `Unavailable` means that it is better not to try now.

        Say `worked` or `failed` before it ends; if neither is known, nothing is concluded.
        """
        async with self._places:
            if wait := self._bucket.take(self._clock.now()):
                await asyncio.sleep(wait)
            before = self.breaker.trial
            if not self.breaker.may(self._clock.now()):
                raise errors.Unavailable(f"{self._name} {self.says()}")
            trial = self.breaker.trial and not before
            try:
                yield
            finally:
                if trial:
                    self.breaker.undecided()

    def worked(self) -> None:
        """Note that the site has answered."""
        self.breaker.worked()

    def failed(self, words: str = "") -> None:
        """Note that the site has failed to answer."""
        self.breaker.failed(self._clock.now(), words)

    def says(self) -> str:
        """Return why commands are blocked; empty if they are not."""
        return self.breaker.says(self._clock.now())


#: What is allowed beyond a command's own time for its answer to arrive.
_GRACE_S = 15.0
_CALL_S = 60.0
_CLOSE_S = 5.0
#: Pauses between tries to connect, and how long a connection must last to count as good.
_RECONNECT = Backoff(first=1.0, limit=60.0, jitter=0.25, good=30.0)
#: While a person must do something: how often to look whether it was done, and to try anyway.
_LOOK_S, _ANYWAY_S = 2.0, 900.0
#: How often to ask again for a place that the login node refuses while nothing of ours has one.
_TRIES, _TRY_S = 5, 1.0


class SiteConnection:
    """One site: `keep` holds the connection, everything else uses it."""

    def __init__(
        self,
        name: str,
        site: SiteSettings,
        shell: Shell,
        program: bytes,
        folder: str,
        *,
        clock: Clock | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """Take the program to run there, and the folder of this project at the site."""
        self.name = name
        self.site = site
        self.shell = shell
        self.gate = CommandLimits(
            name, at_once=site.at_once, per_second=site.per_second, clock=clock, chance=chance
        )
        #: Receives messages from the site.
        self.on_news: News = _ignore
        #: What is wrong, for people; empty if nothing is.
        self.trouble = "not connected yet"
        #: Time of the last change.
        self.since = 0.0
        self.hello = HelperInfo()
        self._boot = HelperStart(name, site.python, folder, program)
        self._clock = clock or WallClock()
        self._chance = chance or dice()
        self._helper: LoginHelper | None = None
        self._ready = asyncio.Event()
        self._asking: dict[BatchCommand, asyncio.Task[Output]] = {}
        self._channels: set[asyncio.Task[int]] = set()
        self._doubts: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        """Whether there is a connection."""
        return self._ready.is_set()

    @property
    def program(self) -> tuple[str, ...]:
        """The call of our program at the site, once there was a connection."""
        return (self.site.python, f"{self.hello.root}/bin/{self._boot.digest}.pyz")

    async def ready(self) -> HelperInfo:
        """Wait until there is a connection."""
        await self._ready.wait()
        return self.hello

    # -- calls ------------------------------------------------------------------------------------

    async def run(
        self,
        call: BatchCommand,
        *,
        timeout: float = _CALL_S,  # noqa: ASYNC109 - it is the site that counts it
        folder: str = "",
        ask: bool = False,
    ) -> Output:
        """Run a command of the batch system.

        `Unavailable` means that it was certainly not run, `Unsure` that it may have been.
        With `ask` it changes nothing, and concurrent callers share one answer.
        """
        if not ask:
            return await self._run(call, timeout, folder)
        task = self._asking.get(call)
        if task is None:
            task = asyncio.create_task(self._run(call, timeout, folder))
            self._asking[call] = task
            task.add_done_callback(lambda done: self._answered(call, done))
        return await asyncio.shield(task)

    def _answered(self, call: BatchCommand, done: asyncio.Task[Output]) -> None:
        del self._asking[call]
        if not done.cancelled():
            done.exception()  # the callers may have gone

    async def _run(self, call: BatchCommand, seconds: float, folder: str) -> Output:
        async with self.gate.turn():
            try:
                said = await self.call(
                    "run", patience=seconds + _GRACE_S, argv=call.argv, input=call.input,
                    timeout=seconds, env=self.site.env, path=self.site.path,
                    detach=call.detach, folder=folder,
                )  # fmt: skip
            except errors.Unsure as error:
                self.gate.failed(error.message)
                raise
            except (errors.NotFound, errors.Denied) as error:
                hint = "`path` in the site's file says where its programs are"
                raise errors.Unavailable(error.message, hint=hint) from error
            if said.get("late"):
                words = f"`{_program(call)}` took more than {seconds:g} s"
                self.gate.failed(words)
                raise errors.Unsure(f"{self.name}: {words}")
            if said["exit"] == 0:
                self.gate.worked()
        return Output(said["exit"], said["out"], said.get("err", ""))

    async def call(self, op: str, *, patience: float = _CALL_S, **values: object) -> dict[str, Any]:
        """Call the login helper."""
        helper = self._helper
        if helper is None:
            raise errors.Unavailable(f"{self.name} is not connected: {self.trouble}")
        try:
            return await helper.ask(op, values, patience)
        except errors.Unsure:
            self._doubt()
            raise

    async def bulk(
        self, words: Sequence[str], *, stdin: int | None = None, stdout: int | None = None
    ) -> Process:
        """Start another process of the helper for bulk data; `words` are its arguments.

        Without a descriptor the process gets a pipe.
        """
        if not self.up:
            raise errors.Unavailable(f"{self.name} is not connected: {self.trouble}")
        ends = [PIPE if one is None else one for one in (stdin, stdout)]
        tries = _TRIES
        while True:
            try:
                process = await self.shell.start(
                    [*self.program, *words], stdin=ends[0], stdout=ends[1]
                )
            except OSError as error:
                raise errors.Unavailable(f"{self.name}: {error}") from error
            except errors.Denied:
                tries -= 1
                if tries <= 0 and not self._channels:
                    raise
                await self._place()
            else:
                watch = asyncio.create_task(process.wait())
                self._channels.add(watch)
                watch.add_done_callback(self._channels.discard)
                return process

    async def _place(self) -> None:
        """Wait until one of our sessions at the login node has ended, or for a while."""
        if self._channels:
            await asyncio.wait(set(self._channels), return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(_TRY_S)

    # -- the connection --------------------------------------------------------------------------

    async def keep(self) -> None:
        """Hold the connection until cancelled."""
        pauses = Pauses(_RECONNECT, self._chance)
        try:
            while True:
                began = self._clock.now()
                try:
                    async with self.once() as helper:
                        await helper.gone()
                except (errors.PilotageError, OSError) as error:
                    self._down(error)
                if self.shell.barred:
                    await self._person()
                    continue
                await self._clock.sleep(pauses.next_after(self._clock.now() - began))
        finally:
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await self.shell.close()

    async def _person(self) -> None:
        """Wait until a person has logged in, or until it is time to try anyway."""
        left = _ANYWAY_S
        while left > 0 and not await self.shell.alive():
            await asyncio.sleep(_LOOK_S)
            left -= _LOOK_S

    @contextlib.asynccontextmanager
    async def once(self) -> AsyncIterator[LoginHelper]:
        """Connect within the block; raise why if that fails."""
        await self.shell.connect()
        async with self._boot.begin(self.shell, self._hear) as helper:
            self.hello, self._helper = helper.hello, helper
            self.trouble, self.since = "", self._clock.now()
            self._ready.set()
            try:
                yield helper
            finally:
                self._ready.clear()
                self._helper = None

    def _hear(self, news: list[dict[str, Any]]) -> None:
        self.on_news(news)

    def _down(self, error: errors.PilotageError | OSError) -> None:
        if not self.trouble or not self.since:
            self.since = self._clock.now()
        hint = getattr(error, "hint", "")
        self.trouble = f"{error}; {hint}" if hint else str(error)

    def _doubt(self) -> None:
        """Check whether the program still answers; drop the connection if it does not."""
        if self._helper and (self._doubts is None or self._doubts.done()):
            self._doubts = asyncio.create_task(_prove(self._helper))


async def _prove(helper: LoginHelper) -> None:
    try:
        await helper.ask("hello", {}, _GRACE_S)
    except errors.PilotageError:
        helper.kill()


def _program(call: BatchCommand) -> str:
    """Return the name of the program of a command."""
    words = (word for word in call.argv if word != "env" and not word.startswith("-"))
    return next(words, call.argv[0])


def _ignore(_: list[dict[str, Any]]) -> None:
    """Ignore messages."""
