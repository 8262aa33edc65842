"""A world that moves by steps of a minute: verbs for a law, and the course of nature."""

from __future__ import annotations

from collections import defaultdict

from pilotage.pool.simulate import dice
from pilotage.pool.simulate.dice import Jobs
from pilotage.pool.simulate.model import Figures, Scenario
from pilotage.pool.simulate.pilots import Drone, Overlay, Pool, ProviderQueue, State

_MINUTES = 60


class Tally:
    """Running counts; core-minutes until they are asked for."""

    def __init__(self, scenario: Scenario) -> None:
        """Begin with nothing."""
        self._from = scenario.warm * _MINUTES
        self._until = scenario.hours * _MINUTES
        #: Cores now: held, used, booting, in drones without a job, draining and used in these.
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
        """Count a drone that boots."""
        self.held += cores
        self.booting += cores
        self.drones += 1

    def release(self, cores: int, *, ran: bool) -> None:
        """Count a drone that goes."""
        self.held -= cores
        if not ran:
            self.unused += 1

    def figures(self, left: list[int]) -> Figures:
        """Say how it went; `left` are the steps at which jobs came that wait still."""
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


_READY, _DRAINING, _GONE = State.READY, State.DRAINING, State.GONE


class World:
    """Providers, drones and jobs."""

    def __init__(
        self, scenario: Scenario, seed: int, *, instant: bool = False, jobs: Jobs | None = None
    ) -> None:
        """Begin empty; with `instant`, orders are drones at once."""
        self.scenario, self.seed, self.instant = scenario, seed, instant
        self.now = 0
        self.end = scenario.hours * dice.MINUTES
        self.pools = tuple(Pool(machine) for machine in scenario.machines)
        machines = scenario.machines
        self.overlay = Overlay(
            scenario.kinds, max(one.cores for one in machines), max(one.memory for one in machines)
        )
        self.tally = Tally(scenario)
        names = [one.name for one in scenario.providers]
        #: At which provider each pool is.
        self.place = tuple(names.index(one.provider) for one in machines)
        self._queues = tuple(ProviderQueue(one, scenario.hours, seed) for one in scenario.providers)
        self.quota = tuple(one.quota for one in self._queues)
        self._jobs = jobs or dice.arrivals(scenario.load, scenario.kinds, scenario.hours, seed)
        self._ends: defaultdict[int, list[tuple[Drone, int]]] = defaultdict(list)
        self._boots: defaultdict[int, list[Drone]] = defaultdict(list)
        self._lives: defaultdict[int, list[Drone]] = defaultdict(list)

    # What a law may do.

    def order(self, pool: int) -> Drone:
        """Ask the provider for one drone."""
        queue, machine = self._queues[self.place[pool]], self.pools[pool].machine
        delay = 0 if self.instant else queue.delay(machine, self.now)
        drone = Drone(pool, machine, self.now, self.now + delay)
        self.pools[pool].queued[drone] = None
        queue.add(drone)
        self.tally.orders += 1
        return drone

    def cancel(self, drone: Drone) -> None:
        """Take an order back, if it is still one."""
        if drone.state is State.QUEUED:
            del self.pools[drone.pool].queued[drone]
            drone.state = _GONE
            self.tally.cancelled += 1

    def drain(self, drone: Drone) -> None:
        """Give a drone no more jobs, and let it go after its last."""
        pool = self.pools[drone.pool]
        if drone.state is State.BOOTING:
            del pool.booting[drone]
            self.tally.booting -= drone.cores
            self._gone(drone)
        if drone.state is not _READY:
            return
        self.overlay.reserved.pop(drone, None)
        self.overlay.shut(drone)
        del pool.ready[drone]
        pool.draining[drone] = None
        taken = drone.cores - drone.free
        pool.leave(drone)
        drone.state = _DRAINING
        drone.at = self.now
        self.tally.draining += drone.cores
        self.tally.tail += taken
        if not drone.jobs:
            self.tally.idle -= drone.cores
            self._release(drone)

    def undrain(self, drone: Drone) -> None:
        """Give a drone jobs again, if its time is not over."""
        if drone.state is not _DRAINING or drone.expired:
            return
        pool = self.pools[drone.pool]
        del pool.draining[drone]
        pool.ready[drone] = None
        taken = drone.cores - drone.free
        pool.enter(drone)
        drone.state = _READY
        self.tally.draining -= drone.cores
        self.tally.tail -= taken
        self.overlay.open(drone)

    # The course of nature.

    def step(self) -> None:
        """Let one minute pass, up to where a law is asked."""
        for drone, kind in self._ends.pop(self.now, ()):
            self._ended(drone, kind)
        for drone in self._lives.pop(self.now, ()):
            drone.expired = True
            self.drain(drone)
        for drone in self._boots.pop(self.now, ()):
            self._booted(drone)
        self.start()
        self._arrive()
        self.match()

    def start(self) -> None:
        """Let providers start what is due and has room."""
        for queue in self._queues:
            for drone in queue.start(self.now):
                self._boot(drone)

    def match(self) -> None:
        """Give waiting jobs to drones with room."""
        overlay = self.overlay
        if not overlay.waiting:
            if overlay.reserved:
                overlay.defragment(0, 0)
            return
        for kind in overlay.order:
            queue = overlay.queues[kind]
            while queue:
                drone = overlay.best(kind)
                if drone is None:
                    break
                self._run(drone, kind)
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

    def _boot(self, drone: Drone) -> None:
        pool = self.pools[drone.pool]
        self.tally.start(drone.cores)
        del pool.queued[drone]
        pool.booting[drone] = None
        pool.arrived.append(self.now - drone.at)
        drone.state = State.BOOTING
        drone.at = self.now
        if self.instant:
            self._booted(drone)
        else:
            self._boots[self.now + pool.machine.boot].append(drone)

    def _booted(self, drone: Drone) -> None:
        if drone.state is _GONE:
            return
        pool = self.pools[drone.pool]
        del pool.booting[drone]
        self.tally.booting -= drone.cores
        if self.scenario.kills(pool.machine.provider, self.now / dice.MINUTES):
            pool.failed += 1
            self._gone(drone)
            return
        drone.state = _READY
        drone.idle = self.now
        pool.ready[drone] = None
        pool.joined += 1
        pool.enter(drone)
        self.tally.idle += drone.cores
        self.overlay.open(drone)
        if pool.machine.lifetime:
            ends = drone.at + int(pool.machine.lifetime * dice.MINUTES)
            self._lives[ends].append(drone)

    def _run(self, drone: Drone, kind: int) -> None:
        """Put as many jobs of a kind into a drone as fit."""
        overlay, tally = self.overlay, self.tally
        what, queue = overlay.kinds[kind], overlay.queues[kind]
        pool = self.pools[drone.pool]
        overlay.shut(drone)
        pool.leave(drone)
        if not drone.jobs:
            tally.idle -= drone.cores
        cores, memory, now = what.cores, what.memory, self.now
        count = 0
        while queue and drone.free >= cores and drone.room >= memory:
            came, steps = queue.popleft()
            drone.free -= cores
            drone.room -= memory
            count += 1
            self._ends[now + steps].append((drone, kind))
            tally.began(came, now, steps)
        drone.jobs += count
        drone.ran = True
        taken = count * cores
        overlay.waiting -= taken
        overlay.running[kind] += taken
        tally.used += taken
        pool.enter(drone)
        overlay.open(drone)

    def _ended(self, drone: Drone, kind: int) -> None:
        overlay, what = self.overlay, self.overlay.kinds[kind]
        pool = self.pools[drone.pool]
        drone.jobs -= 1
        overlay.running[kind] -= what.cores
        self.tally.used -= what.cores
        if drone.state is _DRAINING:
            drone.free += what.cores
            drone.room += what.memory
            self.tally.tail -= what.cores
            if not drone.jobs:
                self._release(drone)
            return
        overlay.shut(drone)
        pool.leave(drone)
        drone.free += what.cores
        drone.room += what.memory
        pool.enter(drone)
        if not drone.jobs:
            drone.idle = self.now
            self.tally.idle += drone.cores
        wanted = overlay.reserved.get(drone)
        if wanted is not None:
            need = overlay.kinds[wanted]
            if drone.free >= need.cores and drone.room >= need.memory:
                del overlay.reserved[drone]
        overlay.open(drone)

    def _release(self, drone: Drone) -> None:
        if drone.state is _DRAINING:
            del self.pools[drone.pool].draining[drone]
            self.tally.draining -= drone.cores
        self._gone(drone)

    def _gone(self, drone: Drone) -> None:
        drone.state = _GONE
        self._queues[self.place[drone.pool]].held -= drone.cores
        self.tally.release(drone.cores, ran=drone.ran)
