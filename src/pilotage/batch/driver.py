"""Drives the batch systems of a site: intent, submit, adopt, watch; each thing begins once.

    intent on disk ──▶ order at the site ──▶ submit ──▶ id on disk ──▶ news, listings ──▶ over

Whatever is killed or cut in between, the next look finds out by the key. What the batch system
does not have is fenced before it is submitted anew: the claim of each of its parts is taken from
here, so that a copy that turns up later has nothing to run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import anyio
import msgspec

from pilotage.base import crash, errors, units
from pilotage.base.backoff import Backoff, Pauses
from pilotage.base.clock import Clock
from pilotage.base.supervise import Background
from pilotage.batch import records, submission
from pilotage.batch.errand import Errands
from pilotage.batch.remote import Remote
from pilotage.batch.submission import (
    Began,
    End,
    Gone,
    Known,
    Over,
    Party,
    Submission,
    Unknown,
    Work,
)
from pilotage.batch.system.model import Batch, BatchError, Item, Order, Phase
from pilotage.store import Writer

_log = logging.getLogger("pilotage.batch")
#: The pauses between two tries of what could certainly not be done.
_RETRY = Backoff(first=1.0, limit=60.0)
#: The least time between two listings.
_BREATH_S = 0.5
_CALLED_OFF = "it was cancelled before it began"


class _Withdrawn(Exception):
    """Nobody wants it any more."""


#: Something that has begun and is not listed counts as lost when it has shown no sign of life for
#: so long, in seconds; it shows one every 20 (node/batchjob/pulse.py).
_QUIET_S = 90.0


#: How long a late copy of what was fenced is looked out for, in seconds.
_LOOKOUT_S = 120.0
_WAITING = frozenset({Phase.QUEUED, Phase.HELD})


class Strays:
    """Submissions of which something was fenced: a copy that turns up has nothing to run."""

    def __init__(self) -> None:
        #: By key, the batch system, and until when it is looked at.
        self._known: dict[str, tuple[str, float]] = {}

    def __bool__(self) -> bool:
        """Whether there is anything to look out for."""
        return bool(self._known)

    def add(self, key: str, batch: str, now: float) -> None:
        """Look out for a submission."""
        self._known[key] = (batch, now + _LOOKOUT_S)

    def batches(self) -> set[str]:
        """Name the batch systems that are to be looked at."""
        return {batch for batch, _ in self._known.values()}

    def unwanted(
        self, found: Mapping[str, Sequence[Item]], out: Mapping[str, Submission], now: float
    ) -> list[str]:
        """Say which of the listed are to be called off, by id."""
        ids = [
            item.id
            for key, items in found.items()
            if key in out or key in self._known
            for item in items
            if _unwanted(item, out.get(key))
        ]
        self._known = {
            key: (batch, until)
            for key, (batch, until) in self._known.items()
            if now < until or any(item.phase in _WAITING for item in found.get(key, ()))
        }
        return ids


def _unwanted(item: Item, one: Submission | None) -> bool:
    work = one.works.get(item.index) if one else None
    if work is None or work.over:
        # One that runs ends by itself, at once or when it has cleared up.
        return item.phase in _WAITING
    return work.stopping and item.phase is not Phase.OVER


class Driver:
    """All that is out at one site."""

    def __init__(
        self, remote: Remote, adapter: Callable[[str], Batch], writer: Writer, clock: Clock
    ) -> None:
        """Get ready; `adapter` finds a batch system by name, once the site is connected."""
        self.remote = remote
        self.errands = Errands(remote, adapter)
        self.writer = writer
        self.clock = clock
        self.steady = clock.steady
        self._poll = units.seconds(remote.site.poll)
        self.settle = units.seconds(remote.site.settle)
        #: What is out, by key.
        self.out: dict[str, Submission] = {}
        self.strays = Strays()
        #: Held by whoever fences: a key must not change while claims are taken under it.
        self.fencing = asyncio.Lock()
        self._parties: dict[bool, Party] = {}
        self._wake = asyncio.Event()
        #: What is done beside.
        self.beside = Background(_log, f"site {remote.name}")
        #: News that came before it was known what is out.
        self._early: list[dict[str, Any]] | None = []
        #: What is wrong, by what it keeps from being done.
        self._troubles: dict[str, str] = {}
        #: Batch systems whose last listing failed: they are listed again even if nothing is out.
        self._failed: set[str] = set()
        remote.on_news = self._hear

    @property
    def trouble(self) -> str:
        """What is wrong with the batch system; empty if nothing is."""
        return next(iter(self._troubles.values()), "")

    def note_trouble(self, what: str, words: str) -> None:
        """Note what keeps something from being done; no words if nothing does."""
        if not words:
            self._troubles.pop(what, None)
        elif self._troubles.get(what) != words:
            self._troubles[what] = words
            _log.warning("site %s: %s", self.remote.name, words)

    def join(self, party: Party, *, pilots: bool) -> None:
        """Say who hears of works."""
        self._parties[pilots] = party

    def party(self, one: Submission) -> Party:
        """Say whose a submission is."""
        return self._parties[any(work.pilot for work in one.works.values())]

    async def load(self) -> list[Submission]:
        """Read what was out when an earlier process ended; each is in doubt until it is seen."""
        found = await self.writer.run(lambda db: records.load(db, self.remote.name))
        now = self.steady()
        for one in found:
            one.asked = now
            self.out[one.key] = one
        early, self._early = self._early, None
        # Whoever loads must have made of it what there is to be made before it hears of ends.
        asyncio.get_running_loop().call_soon(self._hear, early or [])
        self.beside.start(self._tidy())
        self._wake.set()
        return found

    async def _tidy(self) -> None:
        """Remove the folders of submissions that an earlier process could not remove."""
        await self.remote.ready()
        keys = await self.errands.folders()
        if rubbish := await self.writer.run(lambda db: records.closed(db, keys)):
            await self.errands.drop(rubbish)

    def poke(self) -> None:
        """Look at the site again soon."""
        self._wake.set()

    async def run(self) -> None:
        """Watch what is out until cancelled."""
        try:
            while True:
                if not (self.out or self.strays or self._failed):
                    self._wake.clear()
                    await self._wake.wait()
                await self.remote.ready()
                self._wake.clear()
                await self._cycle()
                await asyncio.sleep(min(_BREATH_S, self._poll))
                with anyio.move_on_after(max(0.0, self._poll - _BREATH_S)):
                    await self._wake.wait()
        finally:
            self.beside.cancel()

    # -- submit ----------------------------------------------------------------------------------

    async def submit(
        self, batch: str, order: Order, works: Sequence[Work], items: list[dict[str, Any]]
    ) -> Submission:
        """Write the intent down, and have it submitted; returns when the intent is safe."""
        now = self.clock.now()
        crash.point("site.before_intent")
        one = await self.writer.run(
            lambda db: records.intend(db, self.remote.name, batch, order, works, now)
        )
        crash.point("site.intent")
        if not self.out:
            self.poke()
        self.out[one.key] = one
        one.asking = True
        self.beside.start(self._send(one, items))
        return one

    async def know(self, one: Submission, number: str) -> None:
        """Write down that the batch system has a submission, and how it calls it."""
        one.known, one.number = True, number or one.number
        await self.writer.run(lambda db: records.know(db, one.id, one.number))
        crash.point("site.recorded")
        self.party(one).taken(one)

    async def _send(self, one: Submission, items: list[dict[str, Any]]) -> None:
        """Put the orders at the site and call the submit command, once."""
        try:
            await self._insist(one, lambda: self.errands.prepare(one, items))
            crash.point("site.prepared")
            number = await self._insist(one, lambda: self._submit_once(one))
            crash.point("site.submitted")
        except _Withdrawn:
            _log.debug("submission %s was cancelled before it was sent", one.key)
        except BatchError as error:
            await self._refused(one, str(error), final=error.final)
        except errors.Unsure as error:
            await self._refused(one, f"it is not known whether it was submitted: {error}")
        except errors.PilotageError as error:
            await self._refused(one, f"it could not be submitted: {error}")
        else:
            if number:
                await self.know(one, number)
        finally:
            one.asked, one.asking, one.empty = self.steady(), False, 0
            if not one.known:
                self.poke()
        if one.key not in self.out:
            # It was over before it was submitted, and what is put there now nobody else removes.
            await self.errands.drop([one.key])

    async def _insist(self, one: Submission, step: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Do a step, again and again while it is certain that it was not done."""
        pauses = Pauses(_RETRY)
        while True:
            await self.remote.ready()
            if not one.live:
                raise _Withdrawn
            try:
                done = await step()
            except errors.Unsure:
                raise
            except errors.Unavailable as error:
                self.note_trouble("submit", str(error))
                self.party(one).said(one, f"it cannot be submitted now: {error}")
                await self.clock.sleep(pauses.next())
            else:
                self.note_trouble("submit", "")
                return done

    async def _submit_once(self, one: Submission) -> str:
        closed = set[int]()
        while gaps := set(range(one.order.count)) - {work.place for work in one.live} - closed:
            await self.errands.fence(one, sorted(gaps))
            closed |= gaps
        if not one.live:
            raise _Withdrawn
        # From here on a claim must be taken before anything of it counts as called off.
        one.sent = True
        try:
            return await self.errands.submit(one)
        except errors.Unsure:
            raise
        except errors.Unavailable:
            one.sent = False
            raise

    async def _refused(self, one: Submission, words: str, *, final: bool = False) -> None:
        _log.warning("site %s: %s", self.remote.name, words)
        one.words, one.final = words, final
        await self.writer.run(lambda db: records.note(db, one.id, words))
        self.party(one).said(one, words)

    def _renew(self, one: Submission) -> None:
        """Submit anew what the batch system does not have, all of which is fenced."""
        submission.forget_listings(one)
        one.asking = True
        self.beside.start(self._submit_again(one))

    async def _submit_again(self, one: Submission) -> None:
        key = submission.new_key()
        order = msgspec.structs.replace(
            one.order, key=key, folder=one.order.folder.replace(one.key, key),
            script=one.order.script.replace(one.key, key),
        )  # fmt: skip
        try:
            items = await self._insist(one, lambda: self.party(one).items(one, key))
        except (_Withdrawn, errors.PilotageError) as error:
            _log.warning("site %s: %s is not submitted again: %s", self.remote.name, one.key, error)
            self.party(one).said(one, f"it cannot be submitted again: {error}")
            one.asked, one.asking = self.steady(), False
            return
        async with self.fencing:
            if not one.live:
                one.asking = False
                return
            now = self.clock.now()
            await self.writer.run(lambda db: records.renew(db, one, order, now))
            crash.point("site.renewed")
            self.strays.add(one.key, one.batch, self.steady())
            if self.out.pop(one.key, None) is None:
                # All of it was let go of while this was being written.
                one.asking = False
                return
            one.former.append(one.key)
            one.key, one.order, one.tries, one.number = key, order, one.tries + 1, ""
            self.out[key] = one
        await self._send(one, items)

    # -- news ------------------------------------------------------------------------------------

    def _hear(self, news: list[dict[str, Any]]) -> None:
        """Take in what works say of themselves."""
        if self._early is not None:
            self._early += news
            return
        began: dict[int, list[tuple[Submission, Work]]] = {}
        useless = []
        for one in news:
            key, _, rest = str(one["name"]).partition(".")
            place, _, what = rest.partition(".")
            found = self.out.get(key)
            work = found.works.get(int(place)) if found and place.isdecimal() else None
            if found is None or work is None or what not in ("started", "ended"):
                useless.append(one["name"])
                continue
            if what == "started":
                useless.append(one["name"])
            if not (work.began or work.over):
                began.setdefault(found.id, []).append((found, work))
            work.began = True
            if not found.known:
                # It speaks, so the batch system has it; what id it has there, a listing may say.
                found.known = True
                self.beside.start(self.know(found, _batch_id(one.get("body"))))
            if what == "ended":
                self._ended(found, work, one)
        for works in began.values():
            self.party(works[0][0]).begun(works, "")
        if useless:
            self.beside.start(self._dismiss(useless))

    async def _dismiss(self, names: list[str]) -> None:
        """Let go of news that tell nothing, of what is out or over here.

        All else stays: another site, or another hub, may have the same folder, and what is not
        known here is evidence that they wait for.
        """
        keys = {name.partition(".")[0] for name in names}
        ours = keys & self.out.keys()
        if others := sorted(keys - ours):
            ours.update(await self.writer.run(lambda db: records.closed(db, others)))
        if old := [name for name in names if name.partition(".")[0] in ours]:
            await self.errands.acknowledge(old)

    def _ended(self, one: Submission, work: Work, told: dict[str, Any]) -> None:
        crash.point("site.ended")
        evidence = told.get("body")
        if not isinstance(evidence, dict):
            # Nothing is concluded from it but by the scheduler's word, and it is kept until then.
            _log.error("site %s: %s: %s", self.remote.name, told["name"], told.get("error"))
        elif submission.from_outside(evidence) and not work.stopping:
            work.parting, work.parting_since = evidence, self.steady()
        else:
            self.over(one, work, End(evidence=evidence))

    def over(self, one: Submission, work: Work, end: End) -> None:
        """Tell that a work is over, once."""
        if not work.over:
            work.over = True
            if end.evidence is None:
                self.strays.add(one.key, one.batch, self.steady())
            self.party(one).over(one, work, end)

    async def forget(self, ended: Sequence[tuple[Submission, Work]]) -> None:
        """Let go of works whose end is on disk."""
        now = self.clock.now()
        rows = [(one.id, work.place) for one, work in ended]
        await self.writer.run(lambda db: records.close(db, rows, now))
        crash.point("site.closed")
        told = ("started", "ended")
        names = [f"{one.key}.{work.place}.{what}" for one, work in ended for what in told]
        done: list[str] = []
        for one, work in ended:
            work.over = True
            one.works.pop(work.place, None)
            if not one.works and one.key in self.out:
                del self.out[one.key]
                self.note_trouble(one.key, "")
                done += one.former if one.asking else [*one.former, one.key]
        await self.errands.acknowledge(names)
        if done:
            await self.errands.drop(done)

    # -- listings ------------------------------------------------------------------------------

    async def _cycle(self) -> None:
        """Ask each batch system once for all that is out, and conclude what can be."""
        names = {one.batch for one in self.out.values()} | self.strays.batches() | self._failed
        for name in sorted(names):
            now = self.steady()
            self._failed.add(name)
            try:
                await self._look_at(name, now)
            except (BatchError, errors.PilotageError) as error:
                # Nothing is concluded from what could not be seen.
                self.note_trouble(name, str(error))
            except (LookupError, TypeError, ValueError) as error:
                self.note_trouble(name, f"the answer of the site is not understood: {error!r}")
            else:
                self._failed.discard(name)
                self.note_trouble(name, "")

    async def _look_at(self, name: str, now: float) -> None:
        found = await self.errands.listing(name)
        mine = [one for one in self.out.values() if one.batch == name]
        remembered = await self.errands.history(name, mine, found)
        for one in mine:
            try:
                await self._conclude(one, found.get(one.key, []), remembered.get(one.key, []), now)
            except errors.Unavailable:
                raise
            except errors.PilotageError as error:
                # This one cannot be dealt with, which is nothing to the others.
                self.note_trouble(one.key, str(error))
                self.party(one).said(one, str(error))
        if unwanted := self.strays.unwanted(found, self.out, self.steady()):
            await self.errands.cancel(name, unwanted)

    async def _conclude(
        self, one: Submission, found: Sequence[Item], remembered: Sequence[Item], now: float
    ) -> None:
        began = []
        for finding in submission.look(one, found, remembered, now, self.settle):
            match finding:
                case Known(number=number):
                    await self.know(one, number)
                case Unknown():
                    await self._anew(one)
                case Began(work=work):
                    work.began = True
                    began.append((one, work))
                case Over(work=work, item=item):
                    await self._end(one, work, item, now)
                case Gone(work=work):
                    await self._end(one, work, None, now)
        if began:
            self.party(one).begun(began, "")
        self._tell(one, found)

    def _tell(self, one: Submission, found: Sequence[Item]) -> None:
        """Pass on what the batch system says of what waits there."""
        changed = ""
        for item in found:
            work = one.works.get(item.index)
            waits = item.phase not in (Phase.RUNNING, Phase.OVER)
            if work is not None and waits and item.words and item.words != work.words:
                work.words = changed = item.words
        if changed:
            self.party(one).said(one, changed)

    async def _anew(self, one: Submission) -> None:
        """Submit anew what the batch system does not have, once no copy of it can begin."""
        async with self.fencing:
            if one.root != self.remote.hello.root:
                self._elsewhere(one)
                return
            if one.order.step and not one.words and (told := await self.errands.complaint(one)):
                refusal = self.errands.refusal(one, told)
                one.words, one.final = str(refusal), refusal.final
            free = await self.errands.fence(one, range(one.order.count))
            crash.point("site.fenced")
            live = one.live
            if any(work.place not in free for work in live):
                # A copy that no listing shows has begun: it is looked for by its news.
                await self.know(one, one.number)
                for work in live:
                    if work.place in free:
                        self.over(one, work, End(never="the batch system never had it"))
            elif one.final:
                for work in live:
                    self.over(one, work, End(never=one.words, final=True))
            else:
                self._renew(one)

    async def _end(self, one: Submission, work: Work, item: Item | None, now: float) -> None:
        """End a work without news of its end; nothing of it can begin any more."""
        async with self.fencing:
            if one.root != self.remote.hello.root:
                self._elsewhere(one)
                return
            evidence = work.parting or await self.errands.evidence(one, work)
            never = ""
            if evidence is None:
                if not await self.errands.there(one):
                    self._elsewhere(one)
                    return
                if await self.errands.fence(one, [work.place]):
                    never = "it never began"
                elif item is None and await self._lives(one, work, now):
                    self.party(one).said(one, "it runs, and the batch system does not list it")
                    return
            self.over(one, work, End(evidence=evidence, item=item, never=never))

    async def _lives(self, one: Submission, work: Work, now: float) -> bool:
        """Say whether something that is not listed may be alive."""
        pulse = await self.errands.pulse(one, work)
        if pulse != work.pulse:
            work.pulse, work.pulse_since = pulse, now
        return now - work.pulse_since < _QUIET_S

    def _elsewhere(self, one: Submission) -> None:
        """Say that a submission is not at this site: somebody has changed what the site is."""
        words = (
            f"{one.root}/s/{one.key} is not at the site any more: was its file changed while jobs "
            "were there? They go on if it is put back"
        )
        self.note_trouble(one.key, words)
        self.party(one).said(one, words)

    # -- stop ------------------------------------------------------------------------------------

    async def stop(self, works: Sequence[tuple[Submission, Work]]) -> None:
        """End works: those that have not begun never will, the rest is called off."""
        asked: dict[int, list[Work]] = {}
        known = {one.id: one for one, _ in works}
        for one, work in works:
            work.stopping = True
            if one.sent:
                asked.setdefault(one.id, []).append(work)
            else:
                self.over(one, work, End(never=_CALLED_OFF))
        for number, some in asked.items():
            await self._fence(known[number], some)
        self._wake.set()

    async def _fence(self, one: Submission, works: list[Work]) -> None:
        """Take back what has not begun, however long that takes."""
        pauses = Pauses(_RETRY)
        while True:
            await self.remote.ready()
            left = [work for work in works if not work.over]
            try:
                async with self.fencing:
                    free = await self.errands.fence(one, [work.place for work in left])
                    for work in left:
                        if work.place in free:
                            self.over(one, work, End(never=_CALLED_OFF))
            except errors.PilotageError as error:
                self.note_trouble("stop", str(error))
                await self.clock.sleep(pauses.next())
            else:
                self.note_trouble("stop", "")
                return


def _batch_id(body: Any) -> str:  # noqa: ANN401 - what came from the site
    """Read from what a work says of itself which batch job it is in, as `slurm:123_4` has it."""
    told = str(body.get("batch", "")) if isinstance(body, dict) else ""
    return told.partition(":")[2].partition("_")[0]


_T = TypeVar("_T")
