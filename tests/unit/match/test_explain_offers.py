"""Why a queued job does not start among many offers: every reason, in words, with both values."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pilotage.job.model import Binding, Command, Job, JobSpec, Resources, State
from pilotage.match import prospect, queued
from pilotage.match.explain import explain
from pilotage.match.facts import Explanation, JobFacts, LimitUse, QuotaUse, ReservedFor
from pilotage.match.place import Place
from pilotage.match.prospect import Offered, Offers, Prospect

NOW = 1_000_000.0
G = 10**9


def offered(count: int, idle: str = "", words: str = "", **facts: Any) -> list[Offered]:
    used, until = facts.pop("used", 0), facts.pop("until", float("inf"))
    site, cpus, memory = facts.pop("site", "kit"), facts.pop("cpus", 8), facts.pop("memory", 16 * G)
    made = []
    for number in range(1, count + 1):
        attributes = {"site": site, "os": "linux", "host": f"n{number}", "cpus": cpus, **facts}
        place = Place(number, site, attributes, cpus=cpus, memory=memory, until=until)
        place.free_cpus -= used
        made.append(Offered(place, idle, words))
    return made


def spec(requirements: str = "", **needs: Any) -> JobSpec:
    return JobSpec(
        Command(("fit",)), "fit", resources=Resources(**needs), requirements=requirements
    )


def look(offers: list[Offered], wanted: JobSpec) -> Prospect:
    return Offers(offers, NOW).prospect(wanted, "anna")


def why(offers: list[Offered], wanted: JobSpec | None = None, **facts: Any) -> Explanation:
    wanted = wanted or spec()
    one = Job(
        id=7, name="fit", state=State.QUEUED, reason="", spec=wanted, binding=Binding(), attempt=0,
        priority=0, not_before=0.0, limit_key=facts.pop("limit_key", ""), created=NOW, started=None,
        ended=None, rule="", event=None, parent=None, depth=0, tag="", owner="anna",
    )  # fmt: skip
    found = look(offers, wanted)
    return explain(JobFacts(now=NOW, job=one, running=True, prospect=found, **facts))


def said(found: Explanation) -> list[str]:
    return [f"{one.text}: {one.detail}" if one.detail else one.text for one in found.reasons]


def test_each_clause_that_fails_tells_both_values_and_how_many_fail_it():
    found = why(
        offered(12) + offered(28, cpus=4, memory=8 * G) + offered(3, site="cern", memory=256 * G),
        spec("site == 'kit'", memory=64 * G),
    )
    assert found.headline == "job 7 is queued, and can never start on what is offered now"
    assert said(found) == [
        "`memory >= 64G`: 40 of 43 offers fail; they have at most 16G",
        "`site == 'kit'`: 3 of 43 offers fail; they have 'cern'",
    ]
    assert found.suggestion == (
        "ask for memory ≤ 16G (12 offers would do then), or ask for memory ≤ 8G (40 offers would "
        "do then); `pilotage cancel 7`, then submit it again; or start pilots that have it"
    )


def test_an_attribute_that_no_offer_has_is_named():
    found = why(offered(3), spec("gpu_model == 'H100' and sit == 'kit'"))
    assert said(found) == [
        "`gpu_model == 'H100'`: every offer fails; no offer has an attribute `gpu_model`",
        "`sit == 'kit'`: every offer fails; no offer has an attribute `sit`; did you mean `site`?",
    ]


def test_busy_offers_that_would_do_are_counted_and_the_others_say_why_they_would_not():
    found = why(offered(5, used=6) + offered(2, used=7) + offered(4, cpus=2), spec(cpus=4))
    assert found.headline == "job 7 is queued"
    assert said(found) == [
        (
            "it fits nowhere now; 7 offers would do when they are free: "
            "it needs cpus = 4, and at most 2 are free"
        ),
        "`cpus >= 4`: 4 of 11 offers fail; they have 2",
    ]


def test_what_is_free_in_pieces_is_not_free_together():
    cores, memory = offered(1, used=0), offered(1, used=7)
    cores[0].place.free_memory = G
    found = look(cores + memory, spec(cpus=4, memory=8 * G))
    assert (found.ever, found.now) == (2, 0)
    assert found.short == ("it needs cpus = 4, memory = 8G in one place",)


def test_a_free_offer_leaves_nothing_to_say():
    found = why(offered(5, used=8) + offered(1))
    assert found.headline == "job 7 is queued, and nothing stands in its way: it starts at once"
    assert (found.reasons, found.suggestion) == ((), "")


@pytest.mark.parametrize(
    "idle, words, told",
    [
        (prospect.DRAINING, "asked to drain by a person",
         "2 offers that would do take no more work: asked to drain by a person"),
        (prospect.BLOCKED, "n1: 9 of 9 payloads failed here after 20 ms",
         "2 offers that would do are kept from work: n1: 9 of 9 payloads failed here after 20 ms"),
        (prospect.LOST, "its pilot did not report for 300 s",
         "2 offers that would do were lost: its pilot did not report for 300 s"),
        (prospect.SILENT, "the last report came 2 m ago",
         "2 offers that would do are silent: the last report came 2 m ago"),
        (prospect.BOOTING, "", "2 offers that would do check their nodes"),
        (prospect.KEPT, "for job 3", "2 offers that would do keep their room: for job 3"),
    ],
)  # fmt: skip
def test_offers_that_would_do_but_take_no_work_say_why(idle, words, told):
    small = offered(4, cpus=1)
    found = why(offered(2, idle, words) + small, spec(cpus=4))
    assert found.headline == "job 7 is queued, and all offers that would do take no work now"
    assert said(found)[0] == told
    assert "`cpus >= 4`" in said(found)[1]
    assert found.suggestion
    assert queued.brief(look(offered(2, idle, words) + small, spec(cpus=4))) == told


def test_offers_that_take_no_work_are_not_spoken_of_when_others_have_room():
    assert why(offered(2, prospect.DRAINING, "asked") + offered(1)).reasons == ()


def test_what_was_lost_is_no_offer_that_fails():
    found = why(offered(9, prospect.LOST, cpus=1) + offered(2), spec(cpus=64))
    assert said(found) == ["`cpus >= 64`: every offer fails; they have 8"]


def test_without_any_offer_it_says_how_to_get_one():
    found = why([], coming=3)
    assert found.headline == "job 7 is queued, and there is nothing that could run it"
    assert said(found) == [
        "there are no pilots, and this machine runs no jobs",
        "3 pilots asked for, not here yet",
    ]
    assert "pilotage token new enrol" in found.suggestion
    assert "pilotage up" in found.suggestion


def test_a_place_that_is_kept_for_it_is_told_with_the_time():
    full = offered(1, prospect.KEPT, "for job 7", used=8)
    found = why(full, spec(cpus=8), kept=ReservedFor("pilot 1", NOW + 90))
    assert said(found) == ["pilot 1 is kept for it: there is room in about 1 m 30 s"]


@pytest.mark.parametrize(
    "quota, told",
    [
        (QuotaUse("anna", 8, 6), "6 cores of 8 are in use"),
        (QuotaUse("phys", 2, 0), "0 cores of 2 are in use; the quota is less than it needs"),
    ],
)
def test_a_quota_tells_who_has_it_and_what_is_used(quota, told):
    found = why(offered(1), spec(cpus=4), quota=quota)
    leaves = f"the quota of {quota.owner} leaves no room"
    assert said(found) == [f"{leaves}: it needs 4 cores, and {told}"]


def test_a_limit_and_the_queue_are_told_together():
    found = why(offered(1), limit_key="camera:1", holders=(3,), ahead=LimitUse(4, 1))
    assert said(found) == [
        "at most 1 with the key `camera` may run at once: job 3 runs now",
        "1 job of owners who have had less of their share comes first",
        "4 jobs ahead of it in the queue",
    ]
    assert "--priority" in found.suggestion
    assert "pilotage share" in why(offered(1), ahead=LimitUse(0, 5)).suggestion


def test_what_the_node_has_left_of_its_life_counts():
    found = why(offered(2, until=NOW + 7200), spec(time=86400.0))
    assert said(found) == ["`time >= 1d`: every offer fails; they have 2h"]


def test_the_short_form_is_one_line_and_empty_when_there_is_room():
    assert queued.brief(look(offered(1), spec())) == ""
    assert queued.brief(look(offered(2, used=8), spec())) == "it needs cpus = 1, and none is free"
    assert queued.brief(look([], spec())) == "there are no pilots, and this machine runs no jobs"
    assert queued.brief(look(offered(2), spec("site == 'cern'", cpus=9))) == (
        "`cpus >= 9`: every offer fails; they have 8; "
        "`site == 'cern'`: every offer fails; they have 'kit'"
    )


def test_jobs_that_want_the_same_are_compared_once_with_twenty_thousand_offers():
    offers = Offers(offered(20_000, used=3), NOW)
    began = time.process_time()
    first = offers.prospect(spec("site == 'cern'", cpus=6), "anna")
    once = time.process_time() - began
    assert all(offers.prospect(spec("site == 'cern'", cpus=6), "anna") is first for _ in range(99))
    assert time.process_time() - began < 2 * once + 0.1
    assert first.why.offers == 20_000
