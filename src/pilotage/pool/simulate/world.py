"""A simulated world that moves by minutes: providers, pilots, jobs and their figures."""

from __future__ import annotations

from collections import defaultdict

from pilotage.pool.simulate import dice
from pilotage.pool.simulate.dice import Jobs
from pilotage.pool.simulate.model import Figures, Scenario
from pilotage.pool.simulate.pilots import Overlay, PilotPhase, Pool, ProviderQueue, SimulatedPilot

_MINUTES = 60


class RunTally:
    """Running counts; core-minutes until they are asked for."""

    def __init__(self, scenario: Scenario) -> None:
        self._from = scenario.warm * _MINUTES
        self._until = scenario.hours * _MINUTES
        #: Cores now: held, used, booting, in pilots without a job, draining and used in these.
        self.held = self.used = self.booting = self.idle = self.draining = self.tail = 0
        self.orders = self.cancelled = self.drones = self.unused = 0
        self._held = self._used = self._waited = self._arrived = 0
        self._booting = self._idle = self._drained = 0
        self._jobs = 0
        self._waits: list[int] = []
        self._ran = 0

    def minute(self, now: int, waiting: int) -> None:
        """Add what is held, used and waiting in one minute."""
        if now >= self._from:
            self._held += self.held
            self._used += self.used
            self._waited += waiting
            self._booting += self.booting
            self._idle += self.idle
            self._drained += self.draining - self.tail

    def arrive(self, now: int, cores: int, steps: int) -> None:
        """Count a job that comes."""
        if now >= self._from:
            self._arrived += cores * steps
            self._jobs += 1

    def began(self, came: int, now: int, steps: int) -> None:
        """Count a job that starts."""
        if came >= self._from:
            self._waits.append(now - came)
            self._ran += steps

    def start(self, cores: int) -> None:
        """Count a pilot that boots."""
        self.held += cores
        self.booting += cores
        self.drones += 1

    def release(self, cores: int, *, ran: bool) -> None:
        """Count a pilot that goes."""
        self.held -= cores
        if not ran:
            self.unused += 1

    def figures(self, left: list[int]) -> Figures:
        """Return how it went; `left` are the steps at which jobs came that wait still."""
        waits = sorted(self._waits + [self._until - came for came in left if came >= self._from])
        started = len(self._waits)
        hours = 1 / _MINUTES
        mean = sum(waits) * hours / len(waits) if waits else 0.0
        begun = sum(self._waits) * hours / started if started else 0.0
        partly = self._held - self._used - self._booting - self._idle - self._drained
        reasons = (self._booting, self._drained, self._idle, partly)
        return Figures(
            utilisation=self._used / self._held if self._held else 0.0,
            held=self._held * hours,
            used=self._used * hours,
            waste=(self._held - self._used) * hours,
            arrived=self._arrived * hours,
            waited=self._waited * hours,
            jobs=self._jobs,
            started=started,
            wait=mean,
            wait_p95=waits[int(0.95 * len(waits))] * hours if waits else 0.0,
            turnaround=begun + self._ran * hours / started if started else 0.0,
            orders=self.orders,
            cancelled=self.cancelled,
            drones=self.drones,
            unused=self.unused,
            reasons={
                name: value * hours
                for name, value in zip(("boot", "drain", "idle", "partly"), reasons, strict=True)
            },
        )


_READY, _DRAINING, _GONE = PilotPhase.READY, PilotPhase.DRAINING, PilotPhase.GONE


class World:
    """Providers, pilots and jobs."""

    def __init__(
        self, scenario: Scenario, seed: int, *, instant: bool = False, jobs: Jobs | None = None
    ) -> None:
        """Begin empty; with `instant`, orders are pilots at once."""
        self.scenario, self.seed, self.instant = scenario, seed, instant
        self.now = 0
        self.end = scenario.hours * dice.MINUTES
        self.pools = tuple(Pool(machine) for machine in scenario.machines)
        machines = scenario.machines
        self.overlay = Overlay(
            scenario.kinds, max(one.cores for one in machines), max(one.memory for one in machines)
        )
        self.tally = RunTally(scenario)
        names = [one.name for one in scenario.providers]
        #: At which provider each pool is.
        self.place = tuple(names.index(one.provider) for one in machines)
        self._queues = tuple(ProviderQueue(one, scenario.hours, seed) for one in scenario.providers)
        self.quota = tuple(one.quota for one in self._queues)
        self._jobs = jobs or dice.arrivals(scenario.load, scenario.kinds, scenario.hours, seed)
        self._ends: defaultdict[int, list[tuple[SimulatedPilot, int]]] = defaultdict(list)
        self._boots: defaultdict[int, list[SimulatedPilot]] = defaultdict(list)
        self._lives: defaultdict[int, list[SimulatedPilot]] = defaultdict(list)

    # What a policy may do.

    def order(self, pool: int) -> SimulatedPilot:
        """Ask the provider for one pilot."""
        queue, machine = self._queues[self.place[pool]], self.pools[pool].machine
        delay = 0 if self.instant else queue.delay(machine, self.now)
        pilot = SimulatedPilot(pool, machine, self.now, self.now + delay)
        self.pools[pool].queued[pilot] = None
        queue.add(pilot)
        self.tally.orders += 1
        return pilot

    def cancel(self, pilot: SimulatedPilot) -> None:
        """Take an order back, if it is still one."""
        if pilot.state is PilotPhase.QUEUED:
            del self.pools[pilot.pool].queued[pilot]
            pilot.state = _GONE
            self.tally.cancelled += 1

    def drain(self, pilot: SimulatedPilot) -> None:
        """Drain a pilot: it gets no more jobs and leaves after its last."""
        pool = self.pools[pilot.pool]
        if pilot.state is PilotPhase.BOOTING:
            del pool.booting[pilot]
            self.tally.booting -= pilot.cores
            self._gone(pilot)
        if pilot.state is not _READY:
            return
        self.overlay.reserved.pop(pilot, None)
        self.overlay.shut(pilot)
        del pool.ready[pilot]
        pool.draining[pilot] = None
        taken = pilot.cores - pilot.free
        pool.leave(pilot)
        pilot.state = _DRAINING
        pilot.at = self.now
        self.tally.draining += pilot.cores
        self.tally.tail += taken
        if not pilot.jobs:
            self.tally.idle -= pilot.cores
            self._release(pilot)

    def undrain(self, pilot: SimulatedPilot) -> None:
        """Give a pilot jobs again, if its time is not over."""
        if pilot.state is not _DRAINING or pilot.expired:
            return
        pool = self.pools[pilot.pool]
        del pool.draining[pilot]
        pool.ready[pilot] = None
        taken = pilot.cores - pilot.free
        pool.enter(pilot)
        pilot.state = _READY
        self.tally.draining -= pilot.cores
        self.tally.tail -= taken
        self.overlay.open(pilot)

    # The course of nature.

    def step(self) -> None:
        """Let one minute pass, up to where a policy is asked."""
        for pilot, kind in self._ends.pop(self.now, ()):
            self._ended(pilot, kind)
        for pilot in self._lives.pop(self.now, ()):
            pilot.expired = True
            self.drain(pilot)
        for pilot in self._boots.pop(self.now, ()):
            self._booted(pilot)
        self.start()
        self._arrive()
        self.match()

    def start(self) -> None:
        """Let providers start what is due and has room."""
        for queue in self._queues:
            for pilot in queue.start(self.now):
                self._boot(pilot)

    def match(self) -> None:
        """Give waiting jobs to pilots with room."""
        overlay = self.overlay
        if not overlay.waiting:
            if overlay.reserved:
                overlay.defragment(0, 0)
            return
        for kind in overlay.order:
            queue = overlay.queues[kind]
            while queue:
                pilot = overlay.best(kind)
                if pilot is None:
                    break
                self._run(pilot, kind)
        if overlay.waiting:
            ready = sum(len(pool.ready) for pool in self.pools)
            overlay.defragment(ready, self.scenario.reserve)

    def close(self) -> None:
        """Count the minute that has passed, and go to the next."""
        self.tally.minute(self.now, self.overlay.waiting)
        self.now += 1

    def _arrive(self) -> None:
        overlay, kinds = self.overlay, self.scenario.kinds
        for kind, steps in self._jobs[self.now]:
            overlay.queues[kind].append((self.now, steps))
            overlay.waiting += kinds[kind].cores
            self.tally.arrive(self.now, kinds[kind].cores, steps)

    def _boot(self, pilot: SimulatedPilot) -> None:
        pool = self.pools[pilot.pool]
        self.tally.start(pilot.cores)
        del pool.queued[pilot]
        pool.booting[pilot] = None
        pool.arrived.append(self.now - pilot.at)
        pilot.state = PilotPhase.BOOTING
        pilot.at = self.now
        if self.instant:
            self._booted(pilot)
        else:
            self._boots[self.now + pool.machine.boot].append(pilot)

    def _booted(self, pilot: SimulatedPilot) -> None:
        if pilot.state is _GONE:
            return
        pool = self.pools[pilot.pool]
        del pool.booting[pilot]
        self.tally.booting -= pilot.cores
        if self.scenario.kills(pool.machine.provider, self.now / dice.MINUTES):
            pool.failed += 1
            self._gone(pilot)
            return
        pilot.state = _READY
        pilot.idle = self.now
        pool.ready[pilot] = None
        pool.joined += 1
        pool.enter(pilot)
        self.tally.idle += pilot.cores
        self.overlay.open(pilot)
        if pool.machine.lifetime:
            ends = pilot.at + int(pool.machine.lifetime * dice.MINUTES)
            self._lives[ends].append(pilot)

    def _run(self, pilot: SimulatedPilot, kind: int) -> None:
        """Put as many jobs of a kind into a pilot as fit."""
        overlay, tally = self.overlay, self.tally
        what, queue = overlay.kinds[kind], overlay.queues[kind]
        pool = self.pools[pilot.pool]
        overlay.shut(pilot)
        pool.leave(pilot)
        if not pilot.jobs:
            tally.idle -= pilot.cores
        cores, memory, now = what.cores, what.memory, self.now
        count = 0
        while queue and pilot.free >= cores and pilot.room >= memory:
            came, steps = queue.popleft()
            pilot.free -= cores
            pilot.room -= memory
            count += 1
            self._ends[now + steps].append((pilot, kind))
            tally.began(came, now, steps)
        pilot.jobs += count
        pilot.ran = True
        taken = count * cores
        overlay.waiting -= taken
        overlay.running[kind] += taken
        tally.used += taken
        pool.enter(pilot)
        overlay.open(pilot)

    def _ended(self, pilot: SimulatedPilot, kind: int) -> None:
        overlay, what = self.overlay, self.overlay.kinds[kind]
        pool = self.pools[pilot.pool]
        pilot.jobs -= 1
        overlay.running[kind] -= what.cores
        self.tally.used -= what.cores
        if pilot.state is _DRAINING:
            pilot.free += what.cores
            pilot.room += what.memory
            self.tally.tail -= what.cores
            if not pilot.jobs:
                self._release(pilot)
            return
        overlay.shut(pilot)
        pool.leave(pilot)
        pilot.free += what.cores
        pilot.room += what.memory
        pool.enter(pilot)
        if not pilot.jobs:
            pilot.idle = self.now
            self.tally.idle += pilot.cores
        wanted = overlay.reserved.get(pilot)
        if wanted is not None:
            need = overlay.kinds[wanted]
            if pilot.free >= need.cores and pilot.room >= need.memory:
                del overlay.reserved[pilot]
        overlay.open(pilot)

    def _release(self, pilot: SimulatedPilot) -> None:
        if pilot.state is _DRAINING:
            del self.pools[pilot.pool].draining[pilot]
            self.tally.draining -= pilot.cores
        self._gone(pilot)

    def _gone(self, pilot: SimulatedPilot) -> None:
        pilot.state = _GONE
        self._queues[self.place[pilot.pool]].held -= pilot.cores
        self.tally.release(pilot.cores, ran=pilot.ran)
