"""Ten thousand pools and a hundred thousand pilots take less than a second a cycle."""

from __future__ import annotations

import time

from pilotage.pool.composite import weighted
from pilotage.pool.controller import Linear
from pilotage.pool.decorator import Limiter, Standardiser
from pilotage.pool.fitness import Basis, Feature
from tests.rigs.cluster.scripted_pool import ScriptedPool

NODE = {
    "cpu": Feature(16, 12, 9),
    "memory": Feature(64, 50),
    "disk": Feature(100, 20),
    "gpu": Feature(0),
}


def test_a_cycle_of_ten_thousand_pools_takes_less_than_a_second():
    pools = [ScriptedPool(f"pool {number}", basis=Basis.BOTH) for number in range(10_000)]
    alone = [Linear() >> Standardiser(maximum=1000, surplus=64) >> pool for pool in pools]
    sites = [weighted(*pools[start : start + 100]) for start in range(0, 10_000, 100)]
    whole = Linear() >> weighted(*(Limiter(maximum=9999) >> site for site in sites))

    def cycle() -> float:
        # Of this process alone, since others have the machine too.
        before = time.process_time()
        for pool in pools:
            for pilot in range(10):
                pool.put(str(pilot), 16, NODE)
        for pipeline in alone:
            pipeline.tick(60)
        whole.tick(60)
        return time.process_time() - before

    assert min(cycle() for _ in range(3)) < 1
    assert whole.view().reading.supply == 1_600_000
