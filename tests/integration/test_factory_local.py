"""A factory that starts pilots for hubs on one machine, whoever is killed on the way."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.hub.feed import desk, feeder
from tests.factories import Frontend, Plant

LOCAL = 'batch = "local"\n'


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Frontend]:
    made = Frontend(tmp_path / "lab", maximum=2)
    yield made
    made.kill()


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    made = Plant(tmp_path / "plant", LOCAL)
    yield made
    made.kill()


def over(hub: Frontend, plant: Plant, jobs: list[int]) -> bool:
    """Say whether all is done, everybody has left, and the hub has heard of every end."""
    return hub.done(jobs) and not hub.live() and not plant.guests()


def once(hub: Frontend, plant: Plant, jobs: list[int]) -> None:
    """Require that each job ran once, and each pilot was submitted once."""
    hub.exactly_once(jobs)
    assert len(plant.submitted()) == len(set(plant.submitted()))


@pytest.mark.slow
def test_a_hub_that_reaches_no_batch_system_has_its_jobs_run(hub: Frontend, plant: Plant):
    jobs = hub.queue(6, 0.2)
    hub.start()
    plant.feed(hub, maximum=2)
    plant.start()
    plant.wait(lambda: hub.live() == 2)
    plant.wait(lambda: plant.hub("lab").state == "fed")
    plant.wait(lambda: over(hub, plant, jobs))
    once(hub, plant, jobs)
    assert set(hub.states()) == {"down"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", [*feeder.POINTS, "feed.heard:8", "site.intent", "site.submitted", "site.closed"]
)
def test_nothing_is_doubled_or_forgotten_wherever_the_factory_dies(
    hub: Frontend, plant: Plant, point: str
):
    jobs = hub.queue(6, 0.2)
    hub.start()
    plant.feed(hub, maximum=2)
    plant.dies(point)
    plant.start()
    plant.wait(lambda: over(hub, plant, jobs))
    once(hub, plant, jobs)


@pytest.mark.slow
@pytest.mark.parametrize("point", [*desk.POINTS, "desk.heard:6", "pool.acted:2"])
def test_nothing_is_doubled_or_forgotten_wherever_the_hub_dies(
    hub: Frontend, plant: Plant, point: str
):
    jobs = hub.queue(6, 0.2)
    process = hub.start(crash=point)
    plant.feed(hub, maximum=2)
    plant.start()
    assert process.wait(timeout=60) == -signal.SIGKILL, hub.said
    hub.start()
    plant.wait(lambda: over(hub, plant, jobs))
    once(hub, plant, jobs)
