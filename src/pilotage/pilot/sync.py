"""Handle `sync` messages: record reported ends, and send launches.

Launches are JSON: a definition is filled in once, and then only numbers change.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
from typing import Any, cast

import msgspec

from pilotage.base import errors, text, units
from pilotage.job import model, moves, records, retry
from pilotage.job.model import JobSpec
from pilotage.job.outcome import Cause
from pilotage.match.place import Granted, PlaceRequest, Stop
from pilotage.match.queue import NO_PLACE, JobQueue
from pilotage.match.turn import TurnRecords
from pilotage.pilot import messages
from pilotage.pilot.data import Staging
from pilotage.pilot.model import (
    JobCancelled,
    NodeFacts,
    NotRunnable,
    PilotState,
    ReportedEnd,
    Template,
    Templates,
)
from pilotage.pilot.table import OVER, HeldAttempt, Pilot, PilotLink, PilotTable
from pilotage.project.settings import Pilots
from pilotage.run import launch
from pilotage.run import outcome as run_outcome
from pilotage.run.local import JobListener
from pilotage.run.model import EndReason, Sandbox
from pilotage.run.outcome import classify
from pilotage.store import Db

#: Definitions that are cached, in all and for one node.
_MOST = 10_000
_MOST_CUT = 4
#: Bytes of a launch that is kept for one node; there may be very many nodes.
_LARGE = 4096
_PLAIN = text.dump(model.Binding())
#: Sandboxes that can run an image.
_CONTAINERS = ("podman", "apptainer")


class LaunchTemplates:
    """Makes launches from templates in which marks stand for what differs between jobs.

    The marks are random, so that no text of a user's can hold them by accident or by design.
    """

    def __init__(self, place: launch.LaunchContext, sandbox: str) -> None:
        self._sandbox = sandbox
        self._job, self._attempt = (b"%d" % (10**17 + secrets.randbelow(10**17)) for _ in "ja")
        self._work = f"/{secrets.token_hex(16)}"
        self._python = f"/{secrets.token_hex(16)}"
        self._place = place
        self._known: dict[tuple[int, str], Template] = {}

    def fill(
        self, claim: moves.Claim, spec: model.JobSpec, facts: NodeFacts, cuts: Templates
    ) -> tuple[bytes, list[str], model.Binding]:
        """Write the launch of a claimed job, the files it says it writes, and what made it.

        `cuts` is where what has been written for this node is kept.
        """
        if claim.binding != _PLAIN or isinstance(spec.recipe, model.Call):
            return self._whole(claim, spec, facts, self.sandbox(spec, facts))
        known = cuts.get(claim.spec)
        if known is None:
            known = self._cut(claim, spec, facts)
            if len(cuts) >= _MOST_CUT:
                cuts.clear()
            if len(known[0]) <= _LARGE:
                cuts[claim.spec] = known
        body, outputs = known
        body = body.replace(self._job, b"%d" % claim.job)
        return body.replace(self._attempt, b"%d" % claim.attempt), outputs, model.Binding()

    def sandbox(self, spec: model.JobSpec, facts: NodeFacts) -> str:
        """Choose the kind of sandbox for a job on a node."""
        if spec.image.startswith(("file:", "local:")):
            raise NotRunnable(f"{spec.image} is brought to batch queues of sites only: use `via`")
        if spec.image:
            kind = next((one for one in _CONTAINERS if one in facts.sandboxes), "")
            if not kind:
                raise NotRunnable(f"{facts.host} has no container runtime for {spec.image}")
            return kind
        if self._sandbox == "auto":
            return strongest(facts)
        if self._sandbox != "none" and self._sandbox not in facts.sandboxes:
            raise NotRunnable(f"{facts.host} has no sandbox `{self._sandbox}`")
        return self._sandbox

    def _cut(self, claim: moves.Claim, spec: model.JobSpec, facts: NodeFacts) -> Template:
        """Fill a definition in for a node; marks stand for the job and the attempt."""
        kind = self.sandbox(spec, facts)
        known = self._known.get((claim.spec, kind))
        if known is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            marked = msgspec.structs.replace(claim, job=int(self._job), attempt=int(self._attempt))
            node = NodeFacts(host="", work=self._work, cpus=1, memory=1, python=self._python)
            body, outputs, _ = self._whole(marked, spec, node, kind)
            known = self._known[claim.spec, kind] = (body, outputs)
        body, outputs = known
        for mark, value in ((self._work, facts.work), (self._python, facts.python)):
            body = body.replace(mark.encode(), _inside(value).encode())
        return body, outputs

    def _whole(
        self, claim: moves.Claim, spec: model.JobSpec, facts: NodeFacts, kind: str
    ) -> tuple[bytes, list[str], model.Binding]:
        binding = records.read_binding(claim.binding)
        if objection := launch.objection(binding, spec.on_change):
            raise JobCancelled(objection)
        launch.require_inputs(spec, binding, self._place.base, claim.job)
        place = msgspec.structs.replace(self._place, python=facts.python, programs=facts.work)
        sandbox = None if kind == "none" else Sandbox(kind=kind, image=spec.image)
        prepared = launch.prepare(
            place, launch.carried(spec), binding, job=claim.job, attempt=claim.attempt,
            folder=f"{facts.work}/jobs/{claim.job}.{claim.attempt}", owner=claim.owner,
            sandbox=sandbox,
        )  # fmt: skip
        written = msgspec.structs.asdict(prepared.launch) | {
            "outputs": prepared.outputs, "cpus": spec.resources.cpus,
        }  # fmt: skip
        declared = [*prepared.outputs.values(), *prepared.optional.values()]
        return text.dump(written).encode(), declared, binding


def strongest(facts: NodeFacts) -> str:
    """Name the strongest sandbox without an image that a node has; `none` if it has none."""
    return next((one for one in facts.sandboxes if one not in _CONTAINERS), "none")


def _inside(path: str) -> str:
    """Write a path as it stands inside JSON text."""
    return text.dump(path)[1:-1]


#: The longest that a pilot's question may wait for work, in heartbeats.
_PATIENCE = 1.0
#: Questions of one pilot that may be without an answer; it needs two.
_MOST_OPEN = 64
_MOST_AHEAD = 1024
#: Bytes of launches in one message, and of one launch.
_MESSAGE = 8 << 20
_LAUNCH = messages.MOST_FRAME_BYTES - (1 << 16)
_UNKNOWN = "this pilot uses another connection"


class SyncHandler:
    """Sends work to pilots, and records reported ends."""

    def __init__(
        self, queue: JobQueue, table: PilotTable, templates: LaunchTemplates, staging: Staging,
        settings: Pilots, folder: str, listener: JobListener,
    ) -> None:  # fmt: skip
        """Get ready; what payloads write is kept below `folder`."""
        self._queue = queue
        self._table = table
        self._templates = templates
        self._staging = staging
        #: By attempt, the launches whose data is being looked at.
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._folder = folder
        self._listener = listener
        self._longest = _PATIENCE * units.seconds(settings.heartbeat)
        self._loop = asyncio.get_running_loop()

    def sync(self, pilot: Pilot, message: messages.Sync, line: PilotLink) -> None:
        """Take in what ended, and answer when there is work or time is up."""
        messages.check_sync(message)
        if pilot.open >= _MOST_OPEN:
            raise errors.UsageError("too many questions at once", hint="wait for the answers")
        self._table.heard(pilot)
        if pilot.state not in OVER and pilot.line is not line:
            refusal = errors.Conflict(_UNKNOWN, hint="resume it here")
            line.send(messages.refusal(message.n, message.p, refusal))
            return
        if message.used is not None:
            pilot.gauge.hear(message.used, pilot.facts.cpus, pilot.facts.memory, pilot.seen)
        pilot.leaving = pilot.leaving or message.drain
        # In this order: it may just be called back, in the turn that is being written.
        if message.drain and (pilot.shed or pilot.state is PilotState.AVAILABLE):
            self._table.drain(pilot, pilot.reason or "the pilot takes no more")
        ending: list[HeldAttempt] = []
        ends = [self._ended(pilot, end, ending) for end in message.ended]
        if pilot.state in OVER:
            self._dismiss(pilot, message, line, ends)
        else:
            self._ask(pilot, message, line, ends, ending)

    def log(self, pilot: Pilot, message: messages.PayloadLog) -> None:
        """Write down what a payload wrote, where commands look for it."""
        self._table.heard(pilot)
        if pilot.holds(message.key):
            job, attempt = messages.attempt(message.key)
            run_outcome.write_output(
                self._folder, job, attempt, message.stream, message.at, message.data
            )  # fmt: skip

    async def again(self, pilot: Pilot, missing: list[HeldAttempt]) -> list[bytes]:
        """Write again the launches of attempts whose first answer was lost."""
        pilot.backlog.clear()
        missing = [one for one in missing if one.key not in self._loading]
        if not missing:
            return []
        found: list[Granted] = []

        def read(ledger: TurnRecords, db: Db, _now: float) -> None:
            ids = text.dump([one.job for one in missing])
            claims = [moves.Claim(*row) for row in db.rows("claim_again", ids=ids)]
            specs = {one.spec: ledger.specs.get(db, one.spec) for one in claims}
            found.append(Granted(claims, [], specs))

        await self._queue.do(read)
        self._launch(pilot, found[-1])
        return _some(pilot.backlog)

    # -- questions -------------------------------------------------------------------------------

    def _ask(
        self, pilot: Pilot, message: messages.Sync, line: PilotLink, ends: list[moves.EndedJob],
        ending: list[HeldAttempt],
    ) -> None:  # fmt: skip
        if message.started:
            pids = {key: pid for key, pid in message.started if pilot.holds(key)}
            self._queue.change(lambda _ledger, db, _now: moves.note_pids(db, pids))
        wait = min(message.wait, self._longest)
        # A pilot that is to leave and holds nothing gets its answer at once.
        leaves = pilot.state is PilotState.DRAINING and not (pilot.held or pilot.leaving)
        park = wait > 0 and not (message.ended or message.started or pilot.backlog or leaves)
        answer = functools.partial(self._answer, pilot, message, line, ending)
        ahead = max(0, min(message.ahead, _MOST_AHEAD))
        pilot.unpark()
        pilot.asked = message
        pilot.open += 1
        refuse = functools.partial(_refuse, pilot, message, line)
        self._queue.ask(PlaceRequest(pilot.number, answer, ends, ahead, park, refuse))
        if park:
            pilot.timer = self._loop.call_later(wait, self._queue.nudge, pilot.number)

    def _dismiss(
        self, pilot: Pilot, message: messages.Sync, line: PilotLink, ends: list[moves.EndedJob]
    ) -> None:
        """Dismiss a pilot; of one that was lost, successful ends are still recorded."""
        heard = ends if pilot.state is PilotState.LOST else []
        self._finish(pilot, heard)
        send = functools.partial(self._send, pilot, message, line, [], [])
        self._queue.ask(PlaceRequest(NO_PLACE, lambda _: send()))

    def _finish(self, pilot: Pilot, ends: list[moves.EndedJob]) -> None:
        """Record ends without asking for more work."""
        if ends:
            number = pilot.number
            self._queue.change(lambda ledger, db, now: ledger.finish(db, [(number, ends)], now))

    def _ended(self, pilot: Pilot, end: ReportedEnd, ending: list[HeldAttempt]) -> moves.EndedJob:
        """Classify an end; of attempts that this pilot does not hold, only successes count."""
        job, attempt = messages.attempt(end.key)
        held = pilot.held.get(job)
        if held is None or held.attempt != attempt:
            held = HeldAttempt(job, attempt, 0, None, "")
        else:
            ending.append(held)
        for stream, data in (("stdout", end.stdout), ("stderr", end.stderr)):
            if data and held.spec:
                run_outcome.write_output(self._folder, job, attempt, stream, -1, data)
        judged = _classify(pilot, held, end)
        pilot.done += judged.ok
        return moves.EndedJob(job, attempt, held.number, judged)

    # -- answers ---------------------------------------------------------------------------------

    def _answer(
        self,
        pilot: Pilot,
        message: messages.Sync,
        line: PilotLink,
        ending: list[HeldAttempt],
        granted: Granted,
    ) -> None:
        """Acknowledge to a pilot what is on disk now."""
        pilot.open -= 1
        if pilot.asked is message:
            pilot.unpark()
        for held in ending:
            self._staging.forget(held.key)
            if pilot.held.get(held.job) is held:
                del pilot.held[held.job]
            if held.rule:
                self._listener.ended(held.rule, held.job)
        outputs = self._launch(pilot, granted) if granted.claims else {}
        stops = [one for one in granted.stops if not self._stopped(pilot, one)]
        send = functools.partial(self._send, pilot, message, line, _some(pilot.backlog), stops)
        if outputs:
            self._queue.change(lambda _ledger, db, _now: moves.declare(db, outputs))
            self._queue.ask(PlaceRequest(NO_PLACE, lambda _: send()))
        else:
            send()

    def _stopped(self, pilot: Pilot, stop: Stop) -> bool:
        """Stop a job; return whether its pilot need not hear of it, since it has not been told."""
        held = pilot.held.get(stop.job)
        if held is None:
            return False
        held.stopping = stop.words
        loading = self._loading.get(held.key)
        if loading is not None:
            loading.cancel()
        elif pilot.backlog.pop(stop.job, None) is None:
            return False
        del pilot.held[stop.job]
        end = retry.AttemptEnd(ok=False, message=stop.words, cause=Cause.STOPPED, stopped=True)
        self._finish(pilot, [moves.EndedJob(held.job, held.attempt, held.number, end)])
        return True

    def _send(
        self, pilot: Pilot, message: messages.Sync, line: PilotLink, launches: list[bytes],
        stops: list[Stop],
    ) -> None:  # fmt: skip
        rest = {
            "stop": [as_stop(f"{one.job}.{one.attempt}", one.words) for one in stops],
            "drain": pilot.part(),
            "bye": pilot.state in OVER or pilot.bye > 0,
        }
        head = b'{"n":%d,"p":%d,"jobs":[' % (message.n or 0, message.p)
        body = head + b",".join(launches) + b"]," + msgspec.json.encode(rest)[1:]
        line.send(messages.frame(body))

    def _launch(self, pilot: Pilot, granted: Granted) -> dict[int, list[str]]:
        """Write the launches of claims; return the files that these say they write."""
        outputs: dict[int, list[str]] = {}
        refused = []
        for claim in granted.claims:
            spec = granted.specs[claim.spec]
            if self._staging.wanted(pilot.facts, claim, spec):
                self._load(pilot, claim, spec)
                continue
            try:
                body, files, binding = self._templates.fill(claim, spec, pilot.facts, pilot.cut)
                if len(body) > _LAUNCH:
                    raise NotRunnable(f"it is too large to be sent to a pilot: {len(body)} bytes")
            except Exception as error:  # noqa: BLE001 - one bad definition must not stop the rest
                end = _failure(pilot, error)
                refused.append(moves.EndedJob(claim.job, claim.attempt, claim.spec, end))
                continue
            pilot.held[claim.job] = HeldAttempt(
                claim.job, claim.attempt, claim.spec, spec, claim.rule
            )
            pilot.backlog[claim.job] = body
            if claim.rule or files:
                self._listener.started(claim, binding, files)
            if files:
                outputs[claim.job] = [text.store_path(path) for path in files]
        self._finish(pilot, refused)
        return outputs

    def _load(self, pilot: Pilot, claim: moves.Claim, spec: JobSpec) -> None:
        """Have the launch of a job with data written; its files may have to be read for that."""
        held = HeldAttempt(claim.job, claim.attempt, claim.spec, spec, claim.rule)
        pilot.held[claim.job] = held
        task = self._loop.create_task(self._stage(pilot, claim, held))
        self._loading[held.key] = task
        task.add_done_callback(lambda _: self._loading.pop(held.key))

    async def _stage(self, pilot: Pilot, claim: moves.Claim, held: HeldAttempt) -> None:
        spec = cast("JobSpec", held.spec)
        try:
            kind = self._templates.sandbox(spec, pilot.facts)
            body, files, binding = await self._staging.prepare(pilot.facts, claim, spec, kind)
            if len(body) > _LAUNCH:
                raise NotRunnable(f"it is too large to be sent to a pilot: {len(body)} bytes")
        except Exception as error:  # noqa: BLE001 - whatever it was, the job must not wait for ever
            if pilot.held.get(claim.job) is held:
                del pilot.held[claim.job]
                end = _failure(pilot, error)
                self._finish(pilot, [moves.EndedJob(claim.job, claim.attempt, claim.spec, end)])
            return
        self._listener.started(claim, binding, files)
        if files:
            outputs = {claim.job: [text.store_path(path) for path in files]}
            await self._queue.do(lambda _ledger, db, _now: moves.declare(db, outputs))
        if pilot.held.get(claim.job) is held:
            pilot.backlog[claim.job] = body
            self._queue.nudge(pilot.number)


def _classify(pilot: Pilot, held: HeldAttempt, end: ReportedEnd) -> retry.AttemptEnd:
    """Return what an end that a pilot reports means for its job."""
    ending = messages.ending(end)
    if ending.reason is EndReason.NOT_STARTED:
        # What a node lacks, such as a folder or a program, is no fault of the job.
        return _refused(pilot, ending.message)
    if end.unsaved:
        words = f"its results cannot be brought back: {text.show(end.unsaved)[:2000]}"
        return retry.AttemptEnd(ok=False, message=words, cause=Cause.OUTPUT)
    return classify(ending, held.spec.ok_codes if held.spec else (0,), lambda: end.missing)


def _refused(pilot: Pilot, why: str) -> retry.AttemptEnd:
    """Return that a pilot cannot run a job: another place may."""
    message = f"pilot {pilot.number} at {pilot.site} cannot run it: {why}"
    return retry.AttemptEnd(ok=False, message=message, cause=Cause.NOT_STARTED, refused=True)


def _failure(pilot: Pilot, error: Exception) -> retry.AttemptEnd:
    """Return what it means that a job could not be sent to a pilot."""
    if isinstance(error, NotRunnable):
        return _refused(pilot, str(error))
    cancelled = str(error) if isinstance(error, JobCancelled) else ""
    words = f"cannot start: {error}"
    return retry.AttemptEnd(ok=False, message=words, cause=Cause.NOT_STARTED, call_off=cancelled)


def _refuse(pilot: Pilot, message: messages.Sync, line: PilotLink, error: Exception) -> None:
    pilot.open -= 1
    words = errors.PilotageError(f"the hub failed to handle this: {type(error).__name__}")
    line.send(messages.refusal(message.n, message.p, words))


def _some(backlog: dict[int, bytes]) -> list[bytes]:
    """Take as many launches as go into one message."""
    if not backlog:
        return []
    chosen: list[int] = []
    size = 0
    for job, body in backlog.items():
        size += len(body)
        if chosen and size > _MESSAGE:
            break
        chosen.append(job)
    return [backlog.pop(job) for job in chosen]


def as_stop(key: str, message: str) -> dict[str, Any]:
    """Write for a pilot that an attempt is to end."""
    return {"key": key, "message": message, "grace": None}
