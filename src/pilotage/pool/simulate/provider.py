"""Providers: orders wait their time, and start when there is room."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator

from . import dice
from .drone import Drone, State
from .model import Machine, Provider


class Queue:
    """What is on order at one provider, and what it lets us hold."""

    def __init__(self, provider: Provider, hours: int, seed: int) -> None:
        """Begin with no orders."""
        #: The most that it ever lets us hold, and what we hold.
        self.quota = int(provider.capacity * (1 + provider.swing))
        self.held = 0
        self.provider = provider
        self._seed = seed
        self._delays: dict[str, dice.Delays] = {}
        self._capacity = dice.capacities(provider, hours, seed)
        self._congestion = dice.congestion(provider.name, hours, seed)
        self._due: list[tuple[int, int, Drone]] = []
        self._waiting: deque[Drone] = deque()
        self._number = 0

    def delay(self, machine: Machine, now: int) -> int:
        """Return the steps that a new order waits."""
        if machine.name not in self._delays:
            self._delays[machine.name] = dice.Delays(self.provider, machine.name, self._seed)
        return self._delays[machine.name].next(self._congestion[now])

    def add(self, drone: Drone) -> None:
        """Keep an order until it is due."""
        self._number += 1
        heapq.heappush(self._due, (drone.due, self._number, drone))

    def start(self, now: int) -> Iterator[Drone]:
        """Return what starts now: due, not cancelled, and with room."""
        due, waiting = self._due, self._waiting
        while due and due[0][0] <= now:
            waiting.append(heapq.heappop(due)[2])
        while waiting:
            drone = waiting[0]
            if drone.state is State.QUEUED:
                if self.held + drone.cores > self._capacity[now]:
                    return
                self.held += drone.cores
                yield drone
            waiting.popleft()
