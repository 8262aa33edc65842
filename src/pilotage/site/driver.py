"""Drives the batch systems of a site: intent, submit, adopt, watch; each thing begins once.

    intent on disk ──▶ order at the site ──▶ submit ──▶ id on disk ──▶ news, listings ──▶ over

Whatever is killed or cut in between, the next look finds out by the key. What the batch system
does not have is fenced before it is submitted anew: the claim of each of its parts is taken from
here, so that a copy that turns up later has nothing to run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from asyncio import wrap_future
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import anyio
import msgspec

from pilotage import crash, errors, units
from pilotage.clock import Clock
from pilotage.site import records, submission
from pilotage.site.batch.model import Batch, BatchError, Item, Order
from pilotage.site.remote import Remote
from pilotage.site.submission import Began, Gone, Known, Over, Submission, Unknown, Work
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.site")
_T = TypeVar("_T")
#: How long a submit command and a listing may take, in seconds.
_SUBMIT_S = 120.0
_LIST_S = 90.0
#: How far back history is asked for before what is looked for was submitted, in seconds.
_BEFORE_S = 3600.0
#: After a transient refusal, the pauses between two tries.
_AGAIN_S, _LONGEST_S = 2.0, 60.0


class End(msgspec.Struct, frozen=True):
    """How a work ended: its own evidence, the scheduler's word, or nothing but its absence."""

    evidence: dict[str, Any] | None = None
    item: Item | None = None
    #: Why it never began; empty if it did or may have.
    never: str = ""


class Party(Protocol):
    """Whose work it is: the jobs of a site, or its pilots."""

    def begun(self, works: list[tuple[Submission, Work]], words: str) -> None:
        """Hear that works run."""

    def taken(self, one: Submission) -> None:
        """Hear that the batch system has a submission."""

    def said(self, one: Submission, words: str) -> None:
        """Hear the batch system's last word about what waits there."""

    def over(self, one: Submission, work: Work, end: End) -> None:
        """Hear that a work is over; it stays until `forget` is called."""

    async def items(self, one: Submission, key: str) -> list[dict[str, Any]]:
        """Write the orders of a submission anew, under a key."""
        ...


class Driver:
    """All that is out at one site."""

    def __init__(
        self, remote: Remote, adapter: Callable[[str], Batch], writer: Writer, clock: Clock
    ) -> None:
        """Get ready; `adapter` finds a batch system by name, once the site is connected."""
        self.remote = remote
        self._adapter = adapter
        self._writer = writer
        self._clock = clock
        self._site = remote.site
        self._settle = units.seconds(remote.site.settle)
        self._poll = units.seconds(remote.site.poll)
        #: What is out, by key.
        self.out: dict[str, Submission] = {}
        #: Keys of earlier tries, which were fenced: nothing of them counts.
        self._old: dict[str, None] = {}
        self._parties: dict[bool, Party] = {}
        self._look = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._heard: set[tuple[str, int]] = set()
        #: What is wrong with the batch system; empty if nothing is.
        self.trouble = ""
        remote.on_news = self._hear

    def join(self, party: Party, *, pilots: bool) -> None:
        """Say who hears of works."""
        self._parties[pilots] = party

    async def load(self) -> list[Submission]:
        """Read what was out when an earlier process ended; each is in doubt until it is seen."""
        found = await self._do(lambda db: records.load(db, self.remote.name))
        now = self._clock.now()
        for one in found:
            one.asked = now
            self.out[one.key] = one
        self._look.set()
        return found

    async def run(self) -> None:
        """Watch what is out until cancelled."""
        try:
            while True:
                if not self.out:
                    self._look.clear()
                    await self._look.wait()
                await self.remote.ready()
                await self._cycle()
                with anyio.move_on_after(self._poll if self.out else 0):
                    self._look.clear()
                    await self._look.wait()
        finally:
            for task in self._tasks:
                task.cancel()

    # -- submit ----------------------------------------------------------------------------------

    async def submit(
        self, batch: str, order: Order, works: Sequence[Work], items: list[dict[str, Any]]
    ) -> Submission:
        """Write the intent down, and have it submitted; returns when the intent is safe."""
        now = self._clock.now()
        crash.point("site.before_intent")
        one = await self._do(
            lambda db: records.intend(db, self.remote.name, batch, order, works, now)
        )
        crash.point("site.intent")
        self.out[one.key] = one
        one.asking = True
        self._spawn(self._ask(one, items))
        return one

    def _spawn(self, work: Any) -> None:  # noqa: ANN401 - a coroutine of any kind
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.error("site %s: %s", self.remote.name, error, exc_info=error)

    async def _ask(self, one: Submission, items: list[dict[str, Any]]) -> None:
        """Put the orders at the site and call the submit command, once."""
        try:
            await self._prepare(one, items)
            crash.point("site.prepared")
            batch = self._adapter(one.batch)
            call = batch.submit(one.order)
            said = await self._certain(
                lambda: self.remote.run(call, timeout=_SUBMIT_S, folder=one.order.folder)
            )
            crash.point("site.submitted")
            number = batch.submitted(said)
        except BatchError as error:
            one.words, one.final = str(error), error.final
            self._party(one).said(one, str(error))
            _log.warning("site %s: %s", self.remote.name, error)
        except errors.Unsure as error:
            one.words = str(error)
            self._party(one).said(one, f"it is not known whether it was submitted: {error}")
        else:
            if number:
                await self._know(one, number)
            self.trouble = ""
        finally:
            one.asked, one.asking = self._clock.now(), False
            one.empty = 0
            self._look.set()

    async def _prepare(self, one: Submission, items: list[dict[str, Any]]) -> None:
        """Put the orders at the site; this may be done again and again."""
        root = self.remote.hello.root or (await self.remote.ready()).root
        order = {"v": 1, "key": one.key, "root": root, "items": items}
        links = sorted({digest for item in items for digest in _needed(item)})

        async def put() -> dict[str, Any]:
            return await self.remote.call(
                "prepare", key=one.key, order=order, links=links, script=one.order.script
            )

        missing = (await self._certain(put))["missing"]
        if missing:
            raise BatchError(f"{len(missing)} inputs are not at the site any more", final=True)

    async def _certain(self, step: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the step gives
        """Do a step, again and again while it is certain that it was not done."""
        pause = _AGAIN_S
        while True:
            await self.remote.ready()
            try:
                return await step()
            except errors.Unsure:
                raise
            except errors.Unavailable as error:
                if error.message != self.trouble:
                    _log.warning("%s; waiting", error)
                self.trouble = error.message
                await asyncio.sleep(pause)
                pause = min(_LONGEST_S, 2 * pause)

    async def _know(self, one: Submission, number: str) -> None:
        await self._do(lambda db: records.know(db, one.id, number))
        crash.point("site.recorded")
        one.known, one.number = True, number
        self._party(one).taken(one)

    def _party(self, one: Submission) -> Party:
        pilots = any(work.pilot for work in one.works.values())
        return self._parties[pilots]

    # -- watch -----------------------------------------------------------------------------------

    def poke(self) -> None:
        """Look at the site again soon."""
        self._look.set()

    async def _cycle(self) -> None:
        """Ask each batch system once for all that is out, and conclude what can be."""
        for name in sorted({one.batch for one in self.out.values()}):
            now = self._clock.now()
            try:
                found = await self._list(name)
                mine = [one for one in self.out.values() if one.batch == name]
                remembered = await self._history(name, mine, found)
            except (BatchError, errors.Unavailable) as error:
                if str(error) != self.trouble:
                    _log.warning("site %s: %s", self.remote.name, error)
                self.trouble = str(error)
                continue
            self.trouble = ""
            for one in mine:
                await self._conclude(one, found.get(one.key, []), remembered.get(one.key, []), now)

    async def _list(self, name: str) -> dict[str, list[Item]]:
        batch = self._adapter(name)
        said = await self.remote.run(batch.listing(), timeout=_LIST_S, ask=True)
        return _by_key(batch.listed(said))

    async def _history(
        self, name: str, mine: Iterable[Submission], found: Mapping[str, list[Item]]
    ) -> dict[str, list[Item]]:
        """Ask for what has ended, if something is not listed that should be somewhere."""
        missing = [one for one in mine if one.asked and _lacks(one, found.get(one.key, ()))]
        if not missing:
            return {}
        batch = self._adapter(name)
        call = batch.history(min(one.asked for one in missing) - _BEFORE_S)
        if call is None:
            return {}
        said = await self.remote.run(call, timeout=_LIST_S, ask=True)
        return _by_key(batch.remembered(said))

    async def _conclude(
        self, one: Submission, found: Sequence[Item], remembered: Sequence[Item], now: float
    ) -> None:
        began = []
        for finding in submission.look(one, found, remembered, now, self._settle):
            match finding:
                case Known(number=number):
                    await self._know(one, number)
                case Unknown():
                    await self._anew(one)
                case Began(work=work):
                    work.began = True
                    began.append((one, work))
                case Over(work=work, item=item):
                    await self._end(one, work, item)
                case Gone(work=work):
                    await self._end(one, work, None)
        if began:
            self._party(one).begun(began, "")
        waiting = next((item.words for item in found if item.words), "")
        if waiting and waiting != one.words:
            one.words = waiting
            self._party(one).said(one, waiting)

    async def _anew(self, one: Submission) -> None:
        """Submit anew what the batch system does not have, once no copy of it can begin."""
        fenced = await self.remote.call("fence", key=one.key, count=one.order.count)
        crash.point("site.fenced")
        if fenced["taken"]:
            # A copy that no listing shows has begun: it is looked for by its news.
            await self._know(one, one.number)
            free = set(fenced["free"])
            for work in [work for work in one.works.values() if work.place in free]:
                self._over(one, work, End(never="the batch system never had it"))
            return
        if one.final:
            for work in list(one.works.values()):
                self._over(one, work, End(never=one.words))
            return
        key = submission.new_key()
        order = msgspec.structs.replace(
            one.order, key=key, folder=one.order.folder.replace(one.key, key),
            script=one.order.script.replace(one.key, key),
        )  # fmt: skip
        items = await self._party(one).items(one, key)
        await self._do(lambda db: records.renew(db, one, order))
        self._old[one.key] = None
        del self.out[one.key]
        one.key, one.order, one.tries, one.number = key, order, one.tries + 1, ""
        self.out[key] = one
        submission.forget_listings(one, 0.0)
        one.asking = True
        self._spawn(self._ask(one, items))

    async def _end(self, one: Submission, work: Work, item: Item | None) -> None:
        """End a work of which there is no evidence; nothing of it can begin any more."""
        fenced = await self.remote.call(
            "fence", key=one.key, count=one.order.count, only=work.place
        )
        never = "" if fenced["taken"] else "it never began"
        self._over(one, work, End(item=item, never=never))

    def _over(self, one: Submission, work: Work, end: End) -> None:
        if (one.key, work.place) not in self._heard:
            self._heard.add((one.key, work.place))
            self._party(one).over(one, work, end)

    # -- news ------------------------------------------------------------------------------------

    def _hear(self, news: list[dict[str, Any]]) -> None:
        """Take in what works say of themselves."""
        began: dict[int, list[tuple[Submission, Work]]] = {}
        useless = []
        for one in news:
            key, _, rest = str(one["name"]).partition(".")
            place, _, what = rest.partition(".")
            found = self.out.get(key)
            work = found.works.get(int(place)) if found and place.isdecimal() else None
            if found is None or work is None or "body" not in one:
                useless.append(one["name"])
            elif what == "started":
                useless.append(one["name"])
                if not work.began:
                    work.began = True
                    began.setdefault(found.id, []).append((found, work))
            elif what == "ended":
                crash.point("site.ended")
                work.began = True
                self._over(found, work, End(evidence=one["body"]))
            if found is not None and not found.known:
                # It speaks, so the batch system has it; what id it has there, a listing may say.
                self._spawn(self._know(found, found.number or _batch_id(one.get("body"))))
        for works in began.values():
            self._party(works[0][0]).begun(works, "")
        if useless:
            self._spawn(self._acknowledge(useless))

    async def _acknowledge(self, names: list[str]) -> None:
        # Whatever is not acknowledged now is told again with the next connection.
        with contextlib.suppress(errors.PilotageError):
            await self.remote.call("ack", names=names)

    async def forget(self, ended: Sequence[tuple[Submission, Work]]) -> None:
        """Let go of works whose end is on disk."""
        now = self._clock.now()
        rows = [(one.id, work.place) for one, work in ended]
        await self._do(lambda db: records.close(db, rows, now))
        crash.point("site.closed")
        names = [f"{one.key}.{work.place}.ended" for one, work in ended]
        done = []
        for one, work in ended:
            one.works.pop(work.place, None)
            self._heard.discard((one.key, work.place))
            if not one.works:
                self.out.pop(one.key, None)
                done.append(one.key)
        await self._acknowledge(names)
        if done:
            with contextlib.suppress(errors.PilotageError):
                await self.remote.call("drop", keys=done)

    # -- stop ------------------------------------------------------------------------------------

    async def stop(self, works: Sequence[tuple[Submission, Work]]) -> None:
        """End works: those that have not begun never will, the rest is called off."""
        for one, work in works:
            work.stopping = True
            fenced = await self._certain_call("fence", one, work)
            if not fenced["taken"]:
                self._over(one, work, End(never="it was called off before it began"))
        wanted = {(one.key, work.place) for one, work in works}
        for name in sorted({one.batch for one, _ in works}):
            with contextlib.suppress(BatchError, errors.Unavailable):
                found = await self._list(name)
                ids = [
                    item.id for items in found.values() for item in items
                    if (item.key, item.index) in wanted and item.phase != "over"
                ]  # fmt: skip
                if ids:
                    await self.remote.run(self._adapter(name).cancel(ids), timeout=_SUBMIT_S)

    async def _certain_call(self, op: str, one: Submission, work: Work) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            return await self.remote.call(op, key=one.key, count=one.order.count, only=work.place)

        found: dict[str, Any] = await self._certain(ask)
        return found

    async def _do(self, step: Callable[[Db], _T]) -> _T:
        return await wrap_future(self._writer.submit(step))


def _needed(item: Mapping[str, Any]) -> list[str]:
    """Name the contents that must be at the site before an order can be followed."""
    image = [item["image"]["sha256"]] if item.get("image") else []
    return [*(given["sha256"] for given in item["inputs"]), *image]


def _by_key(items: Iterable[Item]) -> dict[str, list[Item]]:
    found: dict[str, list[Item]] = {}
    for item in items:
        found.setdefault(item.key, []).append(item)
    return found


def _lacks(one: Submission, found: Sequence[Item]) -> bool:
    """Say whether something of a submission is not on a listing."""
    seen = {item.index for item in found}
    return not one.known or any(work.place not in seen for work in one.works.values())


def _batch_id(body: Any) -> str:  # noqa: ANN401 - what came from the site
    """Read from what a work says of itself which batch job it is in, as `slurm:123_4` has it."""
    told = str(body.get("batch", "")) if isinstance(body, dict) else ""
    return told.partition(":")[2].partition("_")[0]
