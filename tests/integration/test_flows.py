"""Workflows at real agents by a real broker, as jobs of the hub, and as flows within flows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilotage.flow.model import OnFailure
from pilotage.job.model import Limit
from testbed.rabbit import Rabbit
from tests.rigs.broker import invariants
from tests.rigs.broker.edge_agent import Edge
from tests.rigs.cluster.web import Web, serving
from tests.rigs.project.flow_hub import Flow, Hub, IntRange, Step, Take, served


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with serving(tmp_path_factory.mktemp("web")) as one:
        yield one


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, rabbit: Rabbit, web: Web) -> Iterator[Edge]:
    """Have two sites at one exchange."""
    with served(tmp_path_factory.mktemp("flows"), rabbit, lambda one: _equip(one, web)) as one:
        yield one


@pytest.fixture(scope="module")
def second(
    first: Edge, tmp_path_factory: pytest.TempPathFactory, rabbit: Rabbit, web: Web
) -> Iterator[Edge]:
    folder = tmp_path_factory.mktemp("flows")
    with served(folder, rabbit, lambda one: _equip(one, web), beside=first) as one:
        yield one


def _equip(edge: Edge, web: Web) -> None:
    """Offer a program that adds a line to what it finds."""
    staging = {"protocols": ["http"], "hosts": [f"127.0.0.1:{web.port}"]}
    staging["private"] = ["127.0.0.0/8"]
    edge.programs.add("add", "echo line >> lines", staging=staging)


RULES = """
[rule.after]
job = ["watched/far", "watched/bad"]
states = ["done", "failed"]
run = ["touch", "{dir_of_marks}/{ended.step}-{ended.state}-{ended.item}"]

[rule.left]
job = "left/make"
run = ["sh", "-c", "echo $0 > {dir_of_marks}/../outputs", "{ended.outputs}"]
"""


@pytest.fixture(scope="module")
def hub(first: Edge, web: Web, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    root = tmp_path_factory.mktemp("flows")
    (root / "marks").mkdir()
    rules = RULES.replace("{dir_of_marks}", str(root / "marks"))
    told = {"flows": {"data": f"{web.url}/flows", "hosts": [f"127.0.0.1:{web.port}"]}}
    made = Hub(root / "hub", first, rules=rules, settings=told)
    with made.up():
        yield made


def here(*argv: str, **more: object) -> Step:
    return Step(recipe={"kind": "command", "argv": list(argv)}, **more)  # type: ignore[arg-type]


def at(edge: Edge, application: str = "count", **more: object) -> Step:
    return Step(sites=(edge.site,), application=application, **more)  # type: ignore[arg-type]


def test_a_chain_over_two_sites_and_this_hub(hub: Hub, first: Edge, second: Edge):
    flow = Flow(
        name="chain",
        steps={
            "a": at(first),
            "b": at(second, needs=("a",)),
            "c": here("true", needs=("b",)),
            "d": at(first, needs=("c",)),
        },
    )
    number = hub.submit(flow)
    assert hub.wait_over(number) == ["done"], hub.told()
    assert set(hub.steps(number).values()) == {"done"}
    assert [one.site for one in hub.attempts(number)] == [first.site, second.site, "", first.site]


def test_a_chain_of_argos_over_two_sites(hub: Hub, first: Edge, second: Edge, web: Web):
    """As its own client sends it; all that is left goes from one to the next, and home."""
    jobs = [
        {"name": name, "site": edge.site, "application": "add", "num_nodes": 1,
         "processes_per_node": 1, "wall_time_minutes": 1}
        for name, edge in (("generate", first), ("simulate", second), ("merge", first))
    ]  # fmt: skip
    chain = {
        "job_id": 1507945011064986, "name": "legacy", "username": "alice", "subjobs": jobs,
        "output_url": f"{web.url}/home", "job_status_routing_key": "argo_job_status",
    }  # fmt: skip
    first.send(chain, topic="argo_job")

    def said() -> list[str]:
        return [one.said["state"] for one in first.raw("argo_job_status")]

    hub.wait(lambda: said() and said()[-1] in ("HISTORY", "FAILED", "REJECTED"))
    assert said()[-1] == "HISTORY", hub.told()
    assert {one.said["job_id"] for one in first.raw("argo_job_status")} == {chain["job_id"]}
    assert [one for one in said() if one in ("SUBJOB_SUBMITTED", "SUBJOB_INCREMENTED")] == [
        "SUBJOB_SUBMITTED", "SUBJOB_INCREMENTED"
    ] * 3  # fmt: skip
    assert said()[:2] == ["CREATED", "STAGED_IN"]
    assert said()[-3:] == ["SUBJOBS_COMPLETED", "STAGED_OUT", "HISTORY"]
    home = [one for one in (web.root / "home").rglob("lines") if one.is_file()]
    assert [one.read_text() for one in home] == ["line\n" * 3]


def test_steps_that_end_anywhere_are_events(hub: Hub, first: Edge):
    marks = hub.root.parent / "marks"
    flow = Flow(
        name="watched",
        steps={
            "far": at(first, each=[1, 2]),
            "bad": at(first, "fail", parameters={"status": 3}, on_failure="continue"),
        },
    )
    number = hub.submit(flow)
    hub.wait_over(number)
    wanted = {"far-done-0", "far-done-1", "bad-failed-0"}
    hub.wait(lambda: {one.name for one in marks.iterdir()} >= wanted)
    assert {one.name for one in marks.iterdir()} == wanted
    assert len(hub.query("SELECT 1 FROM job WHERE rule = 'after'")) == len(wanted)


def test_the_end_of_a_step_at_a_site_tells_what_it_left(hub: Hub, first: Edge, web: Web):
    number = hub.submit(Flow(name="left", steps={"make": at(first, "add", outputs=("lines",))}))
    assert hub.wait_over(number) == ["done"]
    told = hub.root.parent / "outputs"
    hub.wait(lambda: told.exists() and told.read_text())
    (made,) = hub.attempts(number)
    assert told.read_text().strip() == f"{made.place}lines"
    assert made.place.startswith(web.url)
    assert [one.size for one in hub.files(made)] == [len("line\n")]


# -- a step is a job -------------------------------------------------------------------------------


def test_commands_on_jobs_know_a_step_at_a_site(hub: Hub, first: Edge):
    number = hub.submit(Flow(name="seen", steps={"far": at(first)}))
    assert hub.wait_over(number) == ["done"]
    job = hub.attempts(number)[0].job
    listed = json.loads(hub.command("job", "ls", "--tag", f"flow:{number}", "--json"))["jobs"]
    assert [(one["id"], one["name"], one["state"]) for one in listed] == [(job, "seen/far", "done")]
    assert hub.command("logs", str(job)) == "counted\n"
    assert f"job {job} was done" in hub.command("explain", str(job))
    assert first.site in hub.command("story", str(job))


def test_a_step_at_a_site_is_held_and_released_and_cancelled(hub: Hub, first: Edge):
    steps = {"far": at(first, "gate"), "next": at(first, needs=("far",))}
    number = hub.submit(Flow(name="held", steps=steps))
    job = hub.wait_state(number, "far", "running").job
    assert job is not None
    hub.command("hold", str(job))
    hub.wait_state(number, "far", "held")
    assert "held" in hub.why(number)["far"]
    hub.wait(lambda: not first.programs.running())
    hub.command("release", str(job))
    hub.wait_state(number, "far", "running")
    tries = hub.query("SELECT number, state FROM edge_attempt WHERE job = ? ORDER BY 1", job)
    assert tries == [(1, "cancelled"), (2, "running")]
    assert [one.number for one in hub.attempts(number, "far")] == [1], "the same for its workflow"
    hub.command("cancel", str(job))
    assert hub.wait_over(number) == ["failed"]
    assert hub.steps(number) == {"far": "failed", "next": "skipped"}
    hub.wait(lambda: not first.programs.running())


# -- failures --------------------------------------------------------------------------------------

#: Where something goes wrong: the step, and whose doing it is.
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "accept": ({"application": "no-such"}, "rejected"),
    "stage": ({"application": "count", "inputs": (Take(url="http://127.0.0.1:1/x"),)}, "rejected"),
    "run": ({"application": "fail", "parameters": {"status": 3}}, "failed"),
}


@pytest.mark.parametrize("where", WRONG)
@pytest.mark.parametrize("on_failure", ["fail", "continue", "retry", "other_site"])
def test_what_a_failure_means(
    hub: Hub, first: Edge, second: Edge, where: str, on_failure: OnFailure
):
    more, state = WRONG[where]
    sites = (first.site, second.site) if on_failure == "other_site" else (first.site,)
    retries = 1 if on_failure in ("retry", "other_site") else 0
    flow = Flow(
        name="wrong",
        steps={
            "bad": Step(sites=sites, on_failure=on_failure, retries=retries, delay=0.1, **more),
            "next": at(first, needs=("bad",)),
        },
    )
    number = hub.submit(flow)
    hub.wait_over(number)
    tries = hub.attempts(number, "bad")
    # What a site has refused it would refuse again; another may not.
    twice = retries and (on_failure == "other_site" or state == "failed")
    assert [one.state for one in tries] == [state] * (2 if twice else 1), hub.told()
    goes_on = on_failure == "continue"
    assert hub.flow(number).state == ("done" if goes_on else "failed")
    assert hub.steps(number) == {"bad": "failed", "next": "done" if goes_on else "skipped"}
    if on_failure == "other_site":
        assert {one.site for one in tries} == {first.site, second.site}
    if not goes_on:
        assert hub.reasons(number)["next"].startswith("`bad` failed: ")
        assert hub.reasons(number)["bad"] in hub.reasons(number)["next"]


def test_what_can_never_be_sent_fails_with_its_reason(hub: Hub, first: Edge):
    steps = {
        "list": at(first, parameters={"label": [1, 2]}),
        "recipe": Step(sites=(first.site,), recipe={"kind": "command", "argv": ["true"]}),
        "odd": Step(recipe={"kind": "nothing"}),
    }
    numbers = {name: hub.submit(Flow(name=name, steps={name: one})) for name, one in steps.items()}
    assert set(hub.wait_over(*numbers.values())) == {"failed"}
    said = {name: hub.reasons(number)[name] for name, number in numbers.items()}
    assert "no site would accept it" in said["list"]
    # In one of two ways: its heartbeat may not have been heard yet.
    assert all(word in said["recipe"] for word in (f"`{first.site}`", "application"))
    assert "cannot be a job of this hub" in said["odd"]


# -- sites, flows within, many ---------------------------------------------------------------------


def test_a_site_is_chosen_by_how_it_is(hub: Hub, first: Edge, second: Edge):
    """Neither is named: both are heard of, and share the work."""
    hub.wait(lambda: len(hub.query("SELECT 1 FROM edge_site WHERE state = 'well'")) == 2)
    any_of = f"site in ['{first.site}', '{second.site}']"
    steps = {
        "spread": Step(application="count", requirements=any_of, each=list(range(6))),
        "one": Step(application="count", requirements=f"site == '{second.site}'"),
    }
    number = hub.submit(Flow(name="anywhere", steps=steps))
    assert hub.wait_over(number) == ["done"]
    assert {one.site for one in hub.attempts(number, "spread")} == {first.site, second.site}
    assert [one.site for one in hub.attempts(number, "one")] == [second.site]
    none = hub.submit(
        Flow(name="n", steps={"a": Step(application="count", requirements="site == 'x'")})
    )
    hub.wait(lambda: "is as `site == 'x'` asks for" in _reason(hub, none))
    hub.cancel(none)
    assert hub.wait_over(none) == ["cancelled"]


def _reason(hub: Hub, number: int) -> str:
    return str(hub.query("SELECT reason FROM flow_task WHERE flow = ?", number)[0][0])


def test_a_flow_within_a_flow(hub: Hub, first: Edge):
    inner = Flow(
        name="inner",
        params={"n": 0},
        steps={"a": at(first), "b": here("test", "{n}", "=", "5", needs=("a",))},
    )
    flow = Flow(
        name="outer",
        steps={"in": Step(flow=inner, parameters={"n": 5}), "after": at(first, needs=("in",))},
    )
    number = hub.submit(flow)
    assert hub.wait_over(number) == ["done"]
    bad = msgspec.structs.replace(flow, steps={**flow.steps, "in": Step(flow=inner)})
    number = hub.submit(bad)
    assert hub.wait_over(number) == ["failed"]
    assert hub.steps(number) == {"in": "failed", "after": "skipped"}


def test_a_whole_flow_is_called_off_wherever_it_is(hub: Hub, first: Edge, second: Edge):
    inner = Flow(name="inner", steps={"deep": at(second, "gate")})
    flow = Flow(
        name="off",
        steps={
            "far": at(first, "gate"), "near": here("sleep", "600"), "within": Step(flow=inner),
            "later": at(first, needs=("far",)),
        },
    )  # fmt: skip
    number = hub.submit(flow)
    hub.wait_state(number, "far", "running")
    hub.wait(second.programs.running)
    hub.wait(lambda: hub.attempts(number, "near")[-1].state == "running")
    hub.cancel(number)
    assert hub.wait_over(number) == ["cancelled"]
    assert set(hub.steps(number).values()) == {"cancelled"}
    hub.wait(lambda: not first.programs.running() and not second.programs.running())


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.soak)])
def test_a_step_of_many_tasks(hub: Hub, first: Edge, count: int):
    """All of them here, and a tenth of them at a site."""
    flow = Flow(
        name="wide",
        steps={
            "begin": here("true"),
            "many": here("true", each=list(range(count)), needs=("begin",)),
            "far": at(first, each=list(range(count // 10)), needs=("begin",)),
            "end": here("true", needs=("many", "far")),
        },
    )
    number = hub.submit(flow)
    assert hub.wait_over(number, patience=150) == ["done"]
    tries = hub.attempts(number)
    assert len(tries) == count + count // 10 + 2
    assert {one.number for one in tries} == {1}
    invariants.i1_started_once(first)


def test_a_limit_holds_for_all_tasks_with_its_key_wherever_they_run(hub: Hub, first: Edge):
    limit = Limit("{camera}", 2)
    steps = {
        "near": here("sleep", "0.05", each=list(range(6)), limit=limit),
        "far": at(first, each=list(range(4)), limit=limit),
    }
    number = hub.submit(Flow(name="limited", params={"camera": "left"}, steps=steps))
    assert hub.wait_over(number) == ["done"]
    spans = hub.query(
        "SELECT attempt.started, attempt.ended FROM job JOIN attempt ON attempt.job = job.id "
        "WHERE job.limit_key = 'left:2'"
    )
    assert len(spans) == 10
    at_once = [sum(begun <= one < ended for begun, ended in spans) for one, _ in spans]
    assert max(at_once) == 2


def test_a_step_waits_for_limits_that_allow_it_unless_it_may_go_elsewhere(
    hub: Hub, first: Edge, second: Edge
):
    for edge in (first, second):
        edge.programs.add("brief", "true", limits={"time": "5m"})
    hub.wait(lambda: len(hub.query("SELECT 1 FROM edge_site WHERE body LIKE '%\"brief\"%'")) == 2)
    time = IntRange(600, 600)
    waits = hub.submit(Flow(name="waits", steps={"a": at(first, "brief", time=time)}))
    sites = (first.site, second.site)
    both = Step(sites=sites, application="brief", on_failure="other_site", time=time)
    fails = hub.submit(Flow(name="fails", steps={"a": both}))
    assert hub.wait_over(fails) == ["failed"]
    assert [one.state for one in hub.attempts(fails)] == ["rejected", "rejected"]
    hub.wait(lambda: "the limit is 300 s" in hub.query(
        "SELECT reason FROM job WHERE name = 'waits/a'"
    )[0][0])  # fmt: skip
    first.programs.offer("brief", first.programs.folder / "brief", limits={"time": "15m"})
    assert hub.wait_over(waits) == ["done"]
    assert hub.query("SELECT state, attempt FROM job WHERE name = 'waits/a'") == [("done", 2)]


def test_nothing_is_left_to_do_only_when_flows_are_over(tmp_path: Path):
    made = Hub(tmp_path / "hub")
    steps = {"a": here("sleep", "0.3"), "b": here("sleep", "0.3", needs=("a",))}
    number = made.submit(Flow(name="quiet", steps=steps))
    assert made.run() == 0
    assert made.flow(number).state == "done"
