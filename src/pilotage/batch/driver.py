"""Drives the batch systems of a site: intent, submit, adopt, watch; each thing begins once.

    intent on disk ──▶ order at the site ──▶ submit ──▶ id on disk ──▶ news, listings ──▶ over

Whatever is killed or cut in between, the next look finds out by the key. What the batch system
does not have is fenced before it is submitted anew: the claim of each of its parts is taken from
here, so that a copy that turns up later has nothing to run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import anyio

from pilotage.base import crash, errors, units
from pilotage.base.backoff import Backoff, Pauses
from pilotage.base.clock import Clock
from pilotage.base.supervise import Background
from pilotage.batch import records, submission
from pilotage.batch.errand import Errands
from pilotage.batch.party import End, Party
from pilotage.batch.remote import Remote
from pilotage.batch.sender import Sender
from pilotage.batch.strays import Strays
from pilotage.batch.submission import Submission, Work
from pilotage.batch.system.model import Batch, Order
from pilotage.batch.watch import Watch
from pilotage.store import Writer

__all__ = ["Driver", "End", "Party"]

_log = logging.getLogger("pilotage.batch")
#: The pauses between two tries of what could certainly not be done.
_RETRY = Backoff(first=1.0, limit=60.0)
#: The least time between two listings.
_BREATH_S = 0.5
_CALLED_OFF = "it was called off before it began"


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
        self._look = asyncio.Event()
        #: What is done beside.
        self.beside = Background(_log, f"site {remote.name}")
        #: News that came before it was known what is out.
        self._early: list[dict[str, Any]] | None = []
        #: What is wrong, by what it keeps from being done.
        self._troubles: dict[str, str] = {}
        self._watch, self.sender = Watch(self), Sender(self)
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
        self._look.set()
        return found

    async def _tidy(self) -> None:
        """Remove the folders of submissions that an earlier process could not remove."""
        await self.remote.ready()
        keys = await self.errands.folders()
        if rubbish := await self.writer.run(lambda db: records.closed(db, keys)):
            await self.errands.drop(rubbish)

    def poke(self) -> None:
        """Look at the site again soon."""
        self._look.set()

    async def run(self) -> None:
        """Watch what is out until cancelled."""
        try:
            while True:
                if not (self.out or self.strays or self._watch.failed):
                    self._look.clear()
                    await self._look.wait()
                await self.remote.ready()
                self._look.clear()
                await self._watch.cycle()
                await asyncio.sleep(min(_BREATH_S, self._poll))
                with anyio.move_on_after(max(0.0, self._poll - _BREATH_S)):
                    await self._look.wait()
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
        self.beside.start(self.sender.ask(one, items))
        return one

    async def know(self, one: Submission, number: str) -> None:
        """Write down that the batch system has a submission, and how it calls it."""
        one.known, one.number = True, number or one.number
        await self.writer.run(lambda db: records.know(db, one.id, one.number))
        crash.point("site.recorded")
        self.party(one).taken(one)

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
        self._look.set()

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
