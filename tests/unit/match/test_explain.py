"""Why a job is where it is: each state, each obstacle, always with what to do."""

from __future__ import annotations

from typing import Any

import pytest

from pilotage.job.model import Attempt, Binding, Command, Job, JobSpec, Resources, State
from pilotage.match.explain import explain
from pilotage.match.facts import Explanation, JobFacts, LimitUse
from pilotage.match.place import Place
from pilotage.match.prospect import Offered, Offers

NOW = 1_000_000.0


def job(state: State, **facts: Any) -> Job:
    spec = JobSpec(Command(("fit",)), "fit", resources=facts.pop("resources", Resources()))
    plain: dict[str, Any] = {
        "id": 7, "name": "fit", "state": state, "reason": "", "spec": spec, "binding": Binding(),
        "attempt": 0, "priority": 0, "not_before": 0.0, "limit_key": "", "created": NOW - 100,
        "started": None, "ended": None, "rule": "", "event": None, "parent": None, "depth": 0,
        "tag": "",
    }  # fmt: skip
    return Job(**plain | facts)


def why(one: Job, **facts: Any) -> Explanation:
    place = Place(0, "local", {"site": "local"}, cpus=4, memory=8 * 1024**3)
    place.free_cpus -= facts.pop("used", 0)
    found = Offers([Offered(place)], NOW).prospect(one.spec, "anna")
    plain: dict[str, Any] = {"now": NOW, "job": one, "running": True, "prospect": found}
    return explain(JobFacts(**plain | facts))


def texts(found: Explanation) -> str:
    return "\n".join([found.headline, *(f"{one.text} {one.detail}" for one in found.reasons)])


def attempt(**facts: Any) -> Attempt:
    plain: dict[str, Any] = {
        "job": 7, "number": 1, "state": "failed", "dir": "/jobs/7.1", "starter": "", "started": NOW
    }  # fmt: skip
    return Attempt(**plain | facts)


def test_names_the_jobs_that_are_waited_for_and_their_states():
    found = why(job(State.WAITING), before=((3, "running"), (4, "done"), (5, "held")))
    assert found.headline == "job 7 waits for 2 jobs"
    assert [one.text for one in found.reasons] == ["job 3 is running", "job 5 is held"]
    assert "pilotage release 5" in found.suggestion


def test_counts_what_does_not_fit_on_a_screen():
    found = why(job(State.WAITING), before=tuple((one, "queued") for one in range(20)))
    assert found.reasons[-1].text == "and 15 more"


def test_a_held_job_says_why_and_how_it_goes_on():
    found = why(job(State.HELD, reason="loop guard: …"))
    assert "loop guard" in texts(found)
    assert "pilotage release 7" in found.suggestion
    assert "pilotage cancel 7" in found.suggestion


def test_nothing_runs_the_project_comes_first():
    found = why(job(State.QUEUED), running=False, ahead=LimitUse(3))
    assert found.reasons[0].text == "nothing runs this project now"
    assert "pilotage up" in found.suggestion
    assert "3 jobs ahead" in texts(found)


def test_trouble_with_the_store_is_told():
    found = why(job(State.QUEUED), trouble="the disk is full")
    assert "the disk is full" in texts(found)


def test_what_never_fits_is_told_with_both_values():
    found = why(job(State.QUEUED, resources=Resources(cpus=96)))
    assert "never" in found.headline
    assert "`cpus >= 96` the only offer fails; it has 4" in texts(found)
    assert "ask for cpus ≤ 4 (1 offer would do then)" in found.suggestion
    assert "pilotage cancel 7" in found.suggestion


def test_what_can_never_start_is_not_mended_by_starting_the_project():
    found = why(job(State.QUEUED, resources=Resources(cpus=96)), running=False)
    assert found.reasons[0].text == "nothing runs this project now"
    assert "ask for cpus ≤ 4" in found.suggestion


def test_what_does_not_fit_now_is_told_with_both_values():
    found = why(job(State.QUEUED, resources=Resources(cpus=2)), used=3)
    assert "it fits nowhere now; 1 offer would do when it is free" in texts(found)
    assert "it needs cpus = 2, and at most 1 is free" in texts(found)


def test_a_back_off_says_how_long():
    found = why(job(State.QUEUED, not_before=NOW + 90, reason="attempt 1 of 3 failed"))
    assert "1 m 30 s" in texts(found)
    assert "attempt 1 of 3 failed" in texts(found)


def test_a_limit_names_who_holds_it():
    found = why(job(State.QUEUED, limit_key="camera:2"), holders=(3, 4))
    assert "at most 2 with the key `camera`" in texts(found)
    assert "job 3, job 4 run now" in texts(found)


def test_a_limit_that_is_not_reached_is_no_reason():
    found = why(job(State.QUEUED, limit_key="camera:2"), holders=(3,))
    assert found.reasons == ()
    assert "starts at once" in found.headline


def test_a_running_job_is_compared_with_its_limit():
    one = job(State.RUNNING, attempt=1, started=NOW - 30, resources=Resources(time=120.0))
    found = why(one, attempt=attempt(state="running", pid=99), asked="cancel")
    assert "for 30.0 s" in found.headline
    assert "25 % of its time is used 30.0 s of 2 m" in texts(found)
    assert "process 99" in texts(found)
    assert "will be cancelled" in texts(found)
    assert "logs -f 7" in found.suggestion


def test_a_job_that_ran_when_the_project_stopped_is_not_called_running():
    found = why(job(State.RUNNING, attempt=1, started=NOW - 30), running=False)
    assert "ran when the project was last run" in found.headline
    assert "pilotage up" in found.suggestion


@pytest.mark.parametrize("state", [State.FAILED, State.CANCELLED, State.REJECTED])
def test_a_bad_end_says_how_and_what_to_do(state):
    one = job(state, attempt=1, reason="exited with code 1", started=NOW - 60, ended=NOW - 30)
    found = why(one, attempt=attempt(ended=NOW - 30, wall=30.0), last_words="no such column")
    assert "30.0 s ago" in found.headline
    assert "exited with code 1" in texts(found)
    assert "no such column" in texts(found)
    assert "pilotage logs 7 --stderr" in found.suggestion
    assert "pilotage retry 7" in found.suggestion


def test_a_good_end_is_told_without_blame():
    one = job(State.DONE, attempt=1, started=NOW - 60, ended=NOW - 30)
    found = why(one, attempt=attempt(state="done", wall=30.0), last_words="warning", running=False)
    assert found.headline == "job 7 was done 30.0 s ago"
    assert "warning" not in texts(found)


@pytest.mark.parametrize("state", list(State))
def test_every_state_is_explained(state):
    assert why(job(state)).headline.startswith("job 7 ")
