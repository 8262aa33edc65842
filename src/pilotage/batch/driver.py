"""Submits to the batch systems of a site and monitors what is there; each task begins once.

    intent on disk ──▶ order at the site ──▶ submit ──▶ id on disk ──▶ news, listings ──▶ over

Whatever is interrupted in between, the next listing shows it by its key. What the batch system
does not have is fenced before it is resubmitted: the claim of each of its parts is taken from
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
from pilotage.batch.commands import SiteCommands
from pilotage.batch.connection import SiteConnection
from pilotage.batch.submission import (
    Accepted,
    ArrayTask,
    NotAccepted,
    ReportedOver,
    ReportedRunning,
    Submission,
    SubmissionOwner,
    TaskEnd,
    Vanished,
)
from pilotage.batch.system.model import BatchError, BatchItem, BatchOrder, BatchSystem, Phase
from pilotage.store import Writer

_log = logging.getLogger("pilotage.batch")
#: Pauses between retries of what was certainly not done.
_RETRY = Backoff(first=1.0, limit=60.0)
#: The least time between two listings.
_BREATH_S = 0.5
_CANCELLED = "it was cancelled before it began"


class _Withdrawn(Exception):
    """It was cancelled."""


#: Something that has begun and is not listed counts as lost when it has shown no sign of life for
#: so long, in seconds; it shows one every 20 (node/batchjob/pulse.py).
_QUIET_S = 90.0


#: How long late copies of fenced submissions are watched for, in seconds.
_LOOKOUT_S = 120.0
_WAITING = frozenset({Phase.QUEUED, Phase.HELD})


class Strays:
    """Fenced submissions: late copies that the batch system lists are cancelled."""

    def __init__(self) -> None:
        #: By key, the batch system, and until when it is watched.
        self._known: dict[str, tuple[str, float]] = {}

    def __bool__(self) -> bool:
        """Whether there is anything to watch for."""
        return bool(self._known)

    def add(self, key: str, batch: str, now: float) -> None:
        """Watch for late copies of a submission."""
        self._known[key] = (batch, now + _LOOKOUT_S)

    def batches(self) -> set[str]:
        """Return the batch systems that are to be listed."""
        return {batch for batch, _ in self._known.values()}

    def unwanted(
        self, found: Mapping[str, Sequence[BatchItem]], out: Mapping[str, Submission], now: float
    ) -> list[str]:
        """Return the ids of listed jobs that are to be cancelled."""
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


def _unwanted(item: BatchItem, one: Submission | None) -> bool:
    work = one.works.get(item.index) if one else None
    if work is None or work.over:
        # One that runs ends by itself, at once or when it has cleared up.
        return item.phase in _WAITING
    return work.stopping and item.phase is not Phase.OVER


class SubmissionDriver:
    """All submissions at one site: submitted, listed, fenced, cancelled."""

    def __init__(
        self,
        remote: SiteConnection,
        adapter: Callable[[str], BatchSystem],
        writer: Writer,
        clock: Clock,
    ) -> None:
        """Get ready; `adapter` finds a batch system by name, once the site is connected."""
        self.remote = remote
        self.commands = SiteCommands(remote, adapter)
        self._writer = writer
        self._clock = clock
        self.steady = clock.steady
        self._poll = units.seconds(remote.site.poll)
        self._settle = units.seconds(remote.site.settle)
        #: Submissions that are not over, by key.
        self.out: dict[str, Submission] = {}
        self._strays = Strays()
        #: Held while fencing: a key must not change while claims are taken under it.
        self._fencing = asyncio.Lock()
        self._owners: dict[bool, SubmissionOwner] = {}
        self._wake = asyncio.Event()
        #: Tasks in the background.
        self._beside = Background(_log, f"site {remote.name}")
        #: Messages that came before `load`; nothing after it.
        self._early: list[dict[str, Any]] | None = []
        #: Current troubles, by the step that they block.
        self._troubles: dict[str, str] = {}
        #: Batch systems whose last listing failed: they are listed again even if nothing is out.
        self._failed: set[str] = set()
        remote.on_news = self._hear

    @property
    def trouble(self) -> str:
        """The current problem with the batch system, or empty."""
        return next(iter(self._troubles.values()), "")

    def note_trouble(self, what: str, words: str) -> None:
        """Note the trouble that blocks a step; empty words clear it."""
        if not words:
            self._troubles.pop(what, None)
        elif self._troubles.get(what) != words:
            self._troubles[what] = words
            _log.warning("site %s: %s", self.remote.name, words)

    def join(self, owner: SubmissionOwner, *, pilots: bool) -> None:
        """Set the owner of pilots, or of jobs."""
        self._owners[pilots] = owner

    def _owner(self, one: Submission) -> SubmissionOwner:
        """Return the owner of a submission."""
        return self._owners[any(work.pilot for work in one.works.values())]

    async def load(self) -> list[Submission]:
        """Load submissions of an earlier process; each is in doubt until a listing shows it."""
        found = await self._writer.run(lambda db: records.load(db, self.remote.name))
        now = self.steady()
        for one in found:
            one.asked = now
            self.out[one.key] = one
        early, self._early = self._early, None
        # The caller must have adopted them before it gets reports of their ends.
        asyncio.get_running_loop().call_soon(self._hear, early or [])
        self._beside.start(self._tidy())
        self._wake.set()
        return found

    async def _tidy(self) -> None:
        """Remove the folders of submissions that an earlier process could not remove."""
        await self.remote.ready()
        keys = await self.commands.folders()
        if rubbish := await self._writer.run(lambda db: records.closed(db, keys)):
            await self.commands.drop(rubbish)

    def poke(self) -> None:
        """List the batch systems again soon."""
        self._wake.set()

    async def run(self) -> None:
        """Monitor submissions until cancelled."""
        try:
            while True:
                if not (self.out or self._strays or self._failed):
                    self._wake.clear()
                    await self._wake.wait()
                await self.remote.ready()
                self._wake.clear()
                await self._cycle()
                await asyncio.sleep(min(_BREATH_S, self._poll))
                with anyio.move_on_after(max(0.0, self._poll - _BREATH_S)):
                    await self._wake.wait()
        finally:
            self._beside.cancel()

    # -- submit ----------------------------------------------------------------------------------

    async def submit(
        self, batch: str, order: BatchOrder, works: Sequence[ArrayTask], items: list[dict[str, Any]]
    ) -> Submission:
        """Record the intent and submit in the background; return when the intent is on disk."""
        now = self._clock.now()
        crash.point("site.before_intent")
        one = await self._writer.run(
            lambda db: records.intend(db, self.remote.name, batch, order, works, now)
        )
        crash.point("site.intent")
        if not self.out:
            self.poke()
        self.out[one.key] = one
        one.asking = True
        self._beside.start(self._send(one, items))
        return one

    async def _know(self, one: Submission, number: str) -> None:
        """Record that the batch system has accepted a submission, and its id there."""
        one.known, one.number = True, number or one.number
        await self._writer.run(lambda db: records.know(db, one.id, one.number))
        crash.point("site.recorded")
        self._owner(one).taken(one)

    async def _send(self, one: Submission, items: list[dict[str, Any]]) -> None:
        """Put the orders at the site and call the submit command, once."""
        try:
            await self._insist(one, lambda: self.commands.prepare(one, items))
            crash.point("site.prepared")
            number = await self._insist(one, lambda: self._submit_once(one))
            crash.point("site.submitted")
        except _Withdrawn:
            _log.debug("submission %s was cancelled before it was sent", one.key)
        except BatchError as error:
            await self._refused(one, str(error), final=error.final)
        except errors.Unsure as error:
            await self._refused(one, f"it may have been submitted: {error}")
        except errors.PilotageError as error:
            await self._refused(one, f"it could not be submitted: {error}")
        else:
            if number:
                await self._know(one, number)
        finally:
            one.asked, one.asking, one.empty = self.steady(), False, 0
            if not one.known:
                self.poke()
        if one.key not in self.out:
            # It was over before it was submitted, and only we remove what is put there now.
            await self.commands.drop([one.key])

    async def _insist(self, one: Submission, step: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Retry a step while it is certain that it was not done."""
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
                self._owner(one).said(one, f"it cannot be submitted now: {error}")
                await self._clock.sleep(pauses.next())
            else:
                self.note_trouble("submit", "")
                return done

    async def _submit_once(self, one: Submission) -> str:
        closed = set[int]()
        while gaps := set(range(one.order.count)) - {work.place for work in one.live} - closed:
            await self.commands.fence(one, sorted(gaps))
            closed |= gaps
        if not one.live:
            raise _Withdrawn
        # From here on a claim must be taken before anything of it counts as cancelled.
        one.sent = True
        try:
            return await self.commands.submit(one)
        except errors.Unsure:
            raise
        except errors.Unavailable:
            one.sent = False
            raise

    async def _refused(self, one: Submission, words: str, *, final: bool = False) -> None:
        _log.warning("site %s: %s", self.remote.name, words)
        one.words, one.final = words, final
        await self._writer.run(lambda db: records.note(db, one.id, words))
        self._owner(one).said(one, words)

    def _renew(self, one: Submission) -> None:
        """Resubmit a fenced submission that the batch system does not have."""
        submission.forget_listings(one)
        one.asking = True
        self._beside.start(self._submit_again(one))

    async def _submit_again(self, one: Submission) -> None:
        key = submission.new_key()
        order = msgspec.structs.replace(
            one.order, key=key, folder=one.order.folder.replace(one.key, key),
            script=one.order.script.replace(one.key, key),
        )  # fmt: skip
        try:
            items = await self._insist(one, lambda: self._owner(one).items(one, key))
        except (_Withdrawn, errors.PilotageError) as error:
            _log.warning("site %s: %s is not submitted again: %s", self.remote.name, one.key, error)
            self._owner(one).said(one, f"it cannot be submitted again: {error}")
            one.asked, one.asking = self.steady(), False
            return
        async with self._fencing:
            if not one.live:
                one.asking = False
                return
            now = self._clock.now()
            await self._writer.run(lambda db: records.renew(db, one, order, now))
            crash.point("site.renewed")
            self._strays.add(one.key, one.batch, self.steady())
            if self.out.pop(one.key, None) is None:
                # All of it was forgotten while this was being written.
                one.asking = False
                return
            one.former.append(one.key)
            one.key, one.order, one.tries, one.number = key, order, one.tries + 1, ""
            self.out[key] = one
        await self._send(one, items)

    # -- news ------------------------------------------------------------------------------------

    def _hear(self, news: list[dict[str, Any]]) -> None:
        """Process messages of tasks."""
        if self._early is not None:
            self._early += news
            return
        began: dict[int, list[tuple[Submission, ArrayTask]]] = {}
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
                self._beside.start(self._know(found, _batch_id(one.get("body"))))
            if what == "ended":
                self._ended(found, work, one)
        for works in began.values():
            self._owner(works[0][0]).begun(works, "")
        if useless:
            self._beside.start(self._dismiss(useless))

    async def _dismiss(self, names: list[str]) -> None:
        """Acknowledge messages that carry nothing new about known submissions.

        All others stay: another site or hub may share the folder, and need them as evidence.
        """
        keys = {name.partition(".")[0] for name in names}
        ours = keys & self.out.keys()
        if others := sorted(keys - ours):
            ours.update(await self._writer.run(lambda db: records.closed(db, others)))
        if old := [name for name in names if name.partition(".")[0] in ours]:
            await self.commands.acknowledge(old)

    def _ended(self, one: Submission, work: ArrayTask, told: dict[str, Any]) -> None:
        crash.point("site.ended")
        evidence = told.get("body")
        if not isinstance(evidence, dict):
            # Only the scheduler can tell how it ended; the message is kept until then.
            _log.error("site %s: %s: %s", self.remote.name, told["name"], told.get("error"))
        elif submission.from_outside(evidence) and not work.stopping:
            work.parting, work.parting_since = evidence, self.steady()
        else:
            self._over(one, work, TaskEnd(evidence=evidence))

    def _over(self, one: Submission, work: ArrayTask, end: TaskEnd) -> None:
        """Report once that a task is over."""
        if not work.over:
            work.over = True
            if end.evidence is None:
                self._strays.add(one.key, one.batch, self.steady())
            self._owner(one).over(one, work, end)

    async def forget(self, ended: Sequence[tuple[Submission, ArrayTask]]) -> None:
        """Forget tasks whose end is on disk."""
        now = self._clock.now()
        rows = [(one.id, work.place) for one, work in ended]
        await self._writer.run(lambda db: records.close(db, rows, now))
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
        await self.commands.acknowledge(names)
        if done:
            await self.commands.drop(done)

    # -- listings ------------------------------------------------------------------------------

    async def _cycle(self) -> None:
        """List each batch system once, and process the findings."""
        names = {one.batch for one in self.out.values()} | self._strays.batches() | self._failed
        for name in sorted(names):
            now = self.steady()
            self._failed.add(name)
            try:
                await self._look_at(name, now)
            except (BatchError, errors.PilotageError) as error:
                # A failed listing is evidence of nothing.
                self.note_trouble(name, str(error))
            except (LookupError, TypeError, ValueError) as error:
                self.note_trouble(name, f"the site's answer is not understood: {error!r}")
            else:
                self._failed.discard(name)
                self.note_trouble(name, "")

    async def _look_at(self, name: str, now: float) -> None:
        found = await self.commands.listing(name)
        mine = [one for one in self.out.values() if one.batch == name]
        remembered = await self.commands.history(name, mine, found)
        for one in mine:
            try:
                await self._conclude(one, found.get(one.key, []), remembered.get(one.key, []), now)
            except errors.Unavailable:
                raise
            except errors.PilotageError as error:
                # Other submissions are not affected.
                self.note_trouble(one.key, str(error))
                self._owner(one).said(one, str(error))
        if unwanted := self._strays.unwanted(found, self.out, self.steady()):
            await self.commands.cancel(name, unwanted)

    async def _conclude(
        self,
        one: Submission,
        found: Sequence[BatchItem],
        remembered: Sequence[BatchItem],
        now: float,
    ) -> None:
        began = []
        for finding in submission.look(one, found, remembered, now, self._settle):
            match finding:
                case Accepted(number=number):
                    await self._know(one, number)
                case NotAccepted():
                    await self._resubmit(one)
                case ReportedRunning(work=work):
                    work.began = True
                    began.append((one, work))
                case ReportedOver(work=work, item=item):
                    await self._end(one, work, item, now)
                case Vanished(work=work):
                    await self._end(one, work, None, now)
        if began:
            self._owner(one).begun(began, "")
        self._tell(one, found)

    def _tell(self, one: Submission, found: Sequence[BatchItem]) -> None:
        """Report what the batch system says about waiting tasks."""
        changed = ""
        for item in found:
            work = one.works.get(item.index)
            waits = item.phase not in (Phase.RUNNING, Phase.OVER)
            if work is not None and waits and item.words and item.words != work.words:
                work.words = changed = item.words
        if changed:
            self._owner(one).said(one, changed)

    async def _resubmit(self, one: Submission) -> None:
        """Resubmit what the batch system does not have, once no copy of it can begin."""
        async with self._fencing:
            if one.root != self.remote.hello.root:
                self._elsewhere(one)
                return
            if one.order.step and not one.words and (told := await self.commands.complaint(one)):
                refusal = self.commands.refusal(one, told)
                one.words, one.final = str(refusal), refusal.final
            free = await self.commands.fence(one, range(one.order.count))
            crash.point("site.fenced")
            live = one.live
            if any(work.place not in free for work in live):
                # A copy that no listing shows has begun: its messages will report it.
                await self._know(one, one.number)
                for work in live:
                    if work.place in free:
                        self._over(one, work, TaskEnd(never="the batch system never had it"))
            elif one.final:
                for work in live:
                    self._over(one, work, TaskEnd(never=one.words, final=True))
            else:
                self._renew(one)

    async def _end(
        self, one: Submission, work: ArrayTask, item: BatchItem | None, now: float
    ) -> None:
        """End a task that sent no message of its end; nothing of it can begin any more."""
        async with self._fencing:
            if one.root != self.remote.hello.root:
                self._elsewhere(one)
                return
            evidence = work.parting or await self.commands.evidence(one, work)
            never = ""
            if evidence is None:
                if not await self.commands.there(one):
                    self._elsewhere(one)
                    return
                if await self.commands.fence(one, [work.place]):
                    never = "it never began"
                elif item is None and await self._lives(one, work, now):
                    self._owner(one).said(one, "it runs, and the batch system does not list it")
                    return
            self._over(one, work, TaskEnd(evidence=evidence, item=item, never=never))

    async def _lives(self, one: Submission, work: ArrayTask, now: float) -> bool:
        """Return whether a task that is not listed may be alive."""
        pulse = await self.commands.pulse(one, work)
        if pulse != work.pulse:
            work.pulse, work.pulse_since = pulse, now
        return now - work.pulse_since < _QUIET_S

    def _elsewhere(self, one: Submission) -> None:
        """Report that a submission is not at this site: the settings of the site have changed."""
        words = (
            f"{one.root}/s/{one.key} is no longer at the site: was its file changed while jobs "
            "were there? They continue if it is restored"
        )
        self.note_trouble(one.key, words)
        self._owner(one).said(one, words)

    # -- stop ------------------------------------------------------------------------------------

    async def stop(self, works: Sequence[tuple[Submission, ArrayTask]]) -> None:
        """End tasks: those that have not begun never will, the others are cancelled."""
        asked: dict[int, list[ArrayTask]] = {}
        known = {one.id: one for one, _ in works}
        for one, work in works:
            work.stopping = True
            if one.sent:
                asked.setdefault(one.id, []).append(work)
            else:
                self._over(one, work, TaskEnd(never=_CANCELLED))
        for number, some in asked.items():
            await self._fence(known[number], some)
        self._wake.set()

    async def _fence(self, one: Submission, works: list[ArrayTask]) -> None:
        """Fence what has not begun, and retry until that succeeds."""
        pauses = Pauses(_RETRY)
        while True:
            await self.remote.ready()
            left = [work for work in works if not work.over]
            try:
                async with self._fencing:
                    free = await self.commands.fence(one, [work.place for work in left])
                    for work in left:
                        if work.place in free:
                            self._over(one, work, TaskEnd(never=_CANCELLED))
            except errors.PilotageError as error:
                self.note_trouble("stop", str(error))
                await self._clock.sleep(pauses.next())
            else:
                self.note_trouble("stop", "")
                return


def _batch_id(body: Any) -> str:  # noqa: ANN401 - what came from the site
    """Read the batch job id from the message of a task, such as `slurm:123_4`."""
    told = str(body.get("batch", "")) if isinstance(body, dict) else ""
    return told.partition(":")[2].partition("_")[0]


_T = TypeVar("_T")
