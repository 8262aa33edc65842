"""The listings of a driver: a batch system that failed to answer is listed until it answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from pilotage.base import errors
from pilotage.base.clock import WallClock
from pilotage.batch.driver import SubmissionDriver
from pilotage.batch.model import SiteSettings
from pilotage.batch.submission import Submission


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


async def test_trouble_ends_when_the_batch_system_answers_although_nothing_is_there_any_more():
    remote = SimpleNamespace(name="bed", site=SiteSettings(batch="slurm"), on_news=None)
    driver = SubmissionDriver(
        cast("Any", remote), cast("Any", None), cast("Any", None), WallClock()
    )
    driver.commands = cast("Any", commands := Errands())
    driver.out["k"] = cast("Submission", SimpleNamespace(batch="slurm"))
    await driver._cycle()
    assert driver.trouble == "slurm has not answered"
    # The jobs have reported their ends themselves meanwhile.
    driver.out.clear()
    assert driver._failed == {"slurm"}
    await driver._cycle()
    assert driver.trouble
    commands.away = False
    await driver._cycle()
    assert (driver.trouble, driver._failed) == ("", set())
