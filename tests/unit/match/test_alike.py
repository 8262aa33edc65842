"""Many places that are alike to a job are compared with it once."""

from __future__ import annotations

import time

from pilotage.job.model import Resources
from pilotage.match.place import Place
from pilotage.match.prospect import classes, to_job
from pilotage.match.why import PlaceClass, RequirementChange, why

G = 10**9


def place(number: int, *, cpus: int = 8, used: int = 0, until: float = float("inf")) -> Place:
    attributes = {"host": f"node-{number}", "site": "kit" if number % 2 else "desy", "cpus": cpus}
    made = Place(number, str(attributes["site"]), attributes, cpus=cpus, memory=16 * G, until=until)
    made.free_cpus -= used
    return made


def seen(places: list[Place], needs: Resources, names: list[str] | None = None) -> list[PlaceClass]:
    return to_job(classes(places, names or [], 0.0), needs, names or [])


def test_places_differ_only_in_what_is_asked_for():
    places = [place(number) for number in range(10)]
    assert [one.count for one in classes(places, (), 0.0)] == [10]
    assert [one.count for one in classes(places, ["site"], 0.0)] == [5, 5]
    assert len(classes(places, ["host"], 0.0)) == 10
    assert [one.count for one in seen(places, Resources(), ["site"])] == [5, 5]


def test_what_a_job_does_not_ask_for_does_not_tell_places_apart():
    places = [place(number, cpus=8 + number, until=3600.0 * number) for number in range(1, 9)]
    assert [one.count for one in seen(places, Resources(memory=G))] != [8]
    alike = to_job(classes(places, (), 0.0), Resources(cpus=0, memory=G), ())
    assert [one.count for one in alike] == [8]


def test_busy_places_are_told_from_free_ones():
    places = [place(1), place(3, used=1), place(5, used=8), place(7, used=7)]
    found = seen(places, Resources(cpus=2))
    assert sorted(one.count for one in found) == [2, 2]
    assert why(Resources(cpus=2), "", {}, found).now == 2


def test_what_ends_too_soon_will_not_do():
    places = [place(1, until=1000.0), place(3, until=7300.0)]
    needs = Resources(time=86400.0)
    found = why(needs, "", {}, seen(places, needs))
    assert found.changes[0] == RequirementChange("ask for time ≤ 121min", 1)


def test_twenty_thousand_places_are_compared_in_a_moment():
    places = [place(number, cpus=number % 7 + 1) for number in range(20_000)]
    needs, asked = Resources(cpus=64), "site == 'cern' and host like 'node-*'"
    began = time.process_time()
    found = why(needs, asked, {}, seen(places, needs, ["host", "site"]))
    assert time.process_time() - began < 5.0
    assert (found.offers, found.ever) == (20_000, 0)
    assert "7" in found.changes[0].words
