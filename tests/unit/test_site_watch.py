"""The eyes of a driver: what was wrong with a batch system is looked at until it is well."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pilotage.base import errors
from pilotage.batch.strays import Strays
from pilotage.batch.watch import Watch


class Errands:
    """A batch system that does not answer until it is told to."""

    def __init__(self) -> None:
        self.away = True

    async def listing(self, name: str) -> dict[str, Any]:
        if self.away:
            raise errors.Unavailable(f"{name} has not answered")
        return {}

    async def history(self, *_: object) -> dict[str, Any]:
        return {}


class Driver:
    """What the eyes need of a driver."""

    def __init__(self) -> None:
        self.errands, self.strays = Errands(), Strays()
        self.out: dict[str, Any] = {"k": SimpleNamespace(batch="slurm")}
        self.troubles: dict[str, str] = {}

    def steady(self) -> float:
        return 0.0

    def note_trouble(self, what: str, words: str) -> None:
        if words:
            self.troubles[what] = words
        else:
            self.troubles.pop(what, None)


async def test_trouble_ends_when_the_batch_system_answers_although_nothing_is_there_any_more():
    driver = Driver()
    watch = Watch(driver)  # type: ignore[arg-type]
    await watch.cycle()
    assert driver.troubles == {"slurm": "slurm has not answered"}
    # The jobs have told of their ends themselves meanwhile.
    driver.out.clear()
    assert watch.failed == {"slurm"}
    await watch.cycle()
    assert driver.troubles
    driver.errands.away = False
    await watch.cycle()
    assert (driver.troubles, watch.failed) == ({}, set())
