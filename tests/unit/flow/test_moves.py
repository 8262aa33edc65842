"""Changes of state of workflows, one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pilotage.base import errors
from pilotage.edge.handoff import Take
from pilotage.flow import moves, records
from pilotage.flow.model import AttemptEnd, Flow, NewFlow, Step
from pilotage.flow.orders import make_order, start_child
from pilotage.flow.rerun import rerun, stale
from pilotage.store import sqlite
from pilotage.store.sqlite import Db

DONE = AttemptEnd(state="done")
FAILED = AttemptEnd(state="failed", reason="exit 3", kind="application")
CANCELLED = AttemptEnd(state="cancelled", reason="cancelled", kind="person")
LOST = AttemptEnd(state="lost", reason="silent", kind="infrastructure")


@pytest.fixture
def db() -> Db:
    return sqlite.connect(Path(":memory:"))


def app(*needs: str, **keys: Any) -> Step:
    return Step(needs=needs, application="app", **{"sites": ("x",), "delay": 0.0, **keys})


def start(db: Db, key: str = "k", **keys: Any) -> int:
    flow = Flow(**{"name": "f", **keys})
    return moves.submit(db, NewFlow(flow=flow, key=key, owner="me"), 1.0)


def state(db: Db, flow: int) -> dict[str, str]:
    return {one.name: one.state for one in records.steps(db, flow)}


def send(db: Db, now: float = 5.0) -> list[tuple[int, int]]:
    """Send all that is queued, and return tasks and numbers of attempts."""
    found = []
    for task in records.queued(db, now):
        asked = make_order(db, task, now)
        if asked is not None:
            site = (*asked.definition.sites, "any")[0]
            found.append((task, moves.attempt(db, task, "edge", site, "", now)))
    return found


def run(db: Db, how: AttemptEnd = DONE, now: float = 5.0, result: object = None) -> None:
    for task, number in send(db, now):
        assert moves.end(db, task, number, how, now, result=result)


def test_the_same_key_is_the_same_flow_and_another_definition_a_conflict(db: Db) -> None:
    steps = {"a": app()}
    first = start(db, steps=steps)
    assert start(db, steps=steps) == first
    with pytest.raises(errors.Conflict, match=f"flow {first} has the key"):
        start(db, steps={"a": app(), "b": app()})
    assert len(records.flows(db)) == 1


def test_a_circle_is_refused_with_its_path(db: Db) -> None:
    steps = {"a": app("d"), "b": app("a"), "c": app("b"), "d": app("b"), "free": app()}
    with pytest.raises(errors.BadFlow, match="`a` → `b` → `d` → `a`"):
        start(db, steps=steps)
    assert not records.flows(db)


def test_steps_follow_each_other_and_the_flow_ends_once(db: Db) -> None:
    flow = start(db, steps={"a": app(), "b": app("a"), "c": app("a"), "d": app("b", "c")})
    assert state(db, flow) == {"a": "running", "b": "waiting", "c": "waiting", "d": "waiting"}
    run(db)
    assert len(records.queued(db, 9.0)) == 2
    run(db)
    assert state(db, flow)["d"] == "running"
    run(db)
    assert records.flow(db, flow).state == "done"
    story = db.rows("flows_story", after=0, most=1000)
    assert [state for *_, step, _, _, state, _ in story if not step] == ["running", "done"]


def test_a_failure_skips_all_that_follows_at_once_with_the_reason(db: Db) -> None:
    flow = start(db, steps={"a": app(), "b": app("a"), "c": app("b"), "other": app()})
    first = records.tasks(db, flow, step="a")[0].id
    number = moves.attempt(db, first, "edge", "x", "", 2.0)
    moves.end(db, first, number, FAILED, 3.0)
    steps = {one.name: one for one in records.steps(db, flow)}
    assert steps["b"].state == steps["c"].state == "skipped"
    assert steps["c"].reason == "`a` failed: exit 3"
    assert records.flow(db, flow).state == "running"
    run(db)
    assert records.flow(db, flow).state == "failed"
    assert records.flow(db, flow).reason == "`a` failed: exit 3"


def test_the_first_failure_of_many_skips_what_follows_and_the_others_go_on(db: Db) -> None:
    flow = start(db, steps={"many": app(each=[1, 2, 3]), "after": app("many")})
    sent = send(db)
    moves.end(db, *sent[0], FAILED, 6.0)
    assert state(db, flow) == {"many": "running", "after": "skipped"}
    for one in sent[1:]:
        moves.end(db, *one, DONE, 7.0)
    assert records.steps(db, flow)[0].reason == "1 of 3 tasks failed: exit 3"
    assert records.flow(db, flow).state == "failed"


def test_continue_lets_followers_run_and_the_flow_succeed(db: Db) -> None:
    flow = start(
        db,
        steps={
            "a": app(on_failure="continue"),
            "b": app("a", parameters={"how": "{a.state}", "what": "{a.result}"}),
        },
    )
    run(db, FAILED)
    asked = make_order(db, records.queued(db, 9.0)[0], 9.0)
    assert asked is not None
    assert asked.definition.parameters == {"how": "failed", "what": None}
    run(db)
    assert (records.flow(db, flow).state, state(db, flow)["a"]) == ("done", "failed")


def test_retries_are_counted_by_task_and_by_flow(db: Db) -> None:
    flow = start(db, steps={"a": app(retries=5)}, retries=2)
    for _ in range(2):
        run(db, FAILED)
        assert records.flow(db, flow).state == "running"
    run(db, FAILED)
    assert records.flow(db, flow).state == "failed"
    assert "the retries of the flow are used up" in records.flow(db, flow).reason
    task = records.tasks(db, flow)[0]
    assert [one.number for one in records.attempts(db, task.id)] == [1, 2, 3]


def test_the_pause_before_the_next_try_grows(db: Db) -> None:
    flow = start(db, steps={"a": app(retries=9, delay=10.0)})
    waits = []
    now = 5.0
    for _ in range(3):
        run(db, FAILED, now)
        task = records.tasks(db, flow)[0]
        waits.append(task.not_before - now)
        now = task.not_before
    assert waits == [10.0, 20.0, 40.0]


def test_another_site_is_the_next_one_and_the_old_attempt_is_fenced(db: Db) -> None:
    start(db, steps={"a": app(sites=("x", "y", "z"), on_failure="other_site")})
    (task, number) = send(db)[0]
    assert moves.fence(db, task, 6.0, "silent for ten minutes") == number
    first = records.attempts(db, task)[0]
    assert (first.site, first.fenced, first.cancel, first.state) == ("x", 1, 1, "lost")
    assert [one.key for one in records.called_off(db)] == [first.key]
    assert send(db, 7.0) == [(task, 2)]
    assert records.attempts(db, task)[1].site == "y"
    # The old one comes back and says that it is done: nothing comes of it.
    assert not moves.hear(db, first.key, 99, "done", "", "", "", 8.0)
    assert not moves.end(db, task, 1, DONE, 8.0, result="wrong")
    assert records.task(db, task).result == ""
    moves.end(db, task, 2, AttemptEnd(state="rejected", reason="no such application"), 9.0)
    assert send(db, 10.0) == [(task, 3)]
    assert records.attempts(db, task)[2].site == "z"


def test_what_a_site_refuses_is_not_sent_there_again(db: Db) -> None:
    flow = start(db, steps={"a": app(retries=5)})
    run(db, AttemptEnd(state="rejected", reason="no such application"))
    assert records.flow(db, flow).state == "failed"


def test_what_is_lost_is_run_again_once_even_without_retries(db: Db) -> None:
    flow = start(db, steps={"a": app()})
    run(db, LOST)
    assert records.flow(db, flow).state == "running"
    run(db, LOST)
    assert records.flow(db, flow).state == "failed"


def test_words_of_a_site_count_by_their_number_and_the_last_is_the_last(db: Db) -> None:
    start(db, steps={"a": app()})
    task, _ = send(db)[0]
    key = records.attempts(db, task)[0].key

    def hear(seq: int, what: str) -> bool:
        return moves.hear(db, key, seq, what, "", "", "", 6.0)

    assert hear(3, "running")
    assert records.task(db, task).state == "running"
    assert not hear(3, "failed")
    assert not hear(2, "queued")
    assert hear(4, "held")
    assert hear(5, "queued")
    # A task that waits at its site is not one that can be sent.
    assert records.task(db, task).state == "ready"
    assert hear(6, "done")
    assert not hear(7, "failed")
    assert [one.key for one in records.over(db)] == [key]
    assert moves.end(db, task, 1, DONE, 7.0)
    assert not moves.end(db, task, 1, FAILED, 8.0)
    assert not records.over(db)
    assert not moves.hear(db, "flow.9.9.9", 1, "done", "", "", "", 6.0)


def test_a_list_known_only_later_makes_tasks_whose_results_are_in_order(db: Db) -> None:
    flow = start(
        db,
        steps={
            "a": app(),
            "b": app("a", each="{a.result.list}", parameters={"x": "{item.v}", "i": "{index}"}),
            "c": app("b", parameters={"all": "{b.result}"}),
        },
    )
    run(db, result={"list": [{"v": 3}, {"v": "vier"}]})
    asked = [make_order(db, task, 6.0) for task in records.queued(db, 6.0)]
    found = [one.definition.parameters for one in asked if one]
    assert found == [{"x": 3, "i": 0}, {"x": "vier", "i": 1}]
    sent = send(db)
    for task, number in reversed(sent):
        moves.end(db, task, number, DONE, 7.0, result=records.task(db, task).item * 10)
    last = make_order(db, records.queued(db, 9.0)[0], 9.0)
    assert last is not None
    assert last.definition.parameters == {"all": [0, 10]}
    run(db, now=9.0)
    assert records.flow(db, flow).state == "done"


def test_an_empty_list_is_done_at_once(db: Db) -> None:
    flow = start(db, steps={"a": app(each=[]), "b": app("a", parameters={"all": "{a.result}"})})
    assert state(db, flow) == {"a": "done", "b": "running"}
    asked = make_order(db, records.queued(db, 9.0)[0], 9.0)
    assert asked is not None
    assert asked.definition.parameters == {"all": []}


@pytest.mark.parametrize(
    "step, words",
    [
        (app("a", each="{a.result.list}"), "`each` must be a list"),
        (app("a", each="{a.result.other}"), "`{a.result.other}` stands for nothing"),
        (app("a", when="a.result.other > 3"), "`{a.result.other}` stands for nothing"),
        (app("a", parameters={"x": "{a.result.list.deep}"}), "stands for nothing"),
    ],
)
def test_what_stands_for_nothing_fails_the_step_with_a_reason(
    db: Db, step: Step, words: str
) -> None:
    flow = start(db, steps={"a": app(), "b": step, "c": app("b")})
    run(db, result={"list": "no list"})
    assert not send(db)
    assert state(db, flow) == {"a": "done", "b": "failed", "c": "skipped"}
    assert words in records.steps(db, flow)[1].reason


def test_conditions_skip_a_branch_and_what_joins_them_runs(db: Db) -> None:
    flow = start(
        db,
        steps={
            "a": app(),
            "big": app("a", when="a.result.n > 10"),
            "small": app("a", when="{a.result.n} <= 10 and {a.state} == 'done'"),
            "after_big": app("big"),
            "join": app("big", "small"),
        },
    )
    run(db, result={"n": 4})
    assert state(db, flow)["big"] == state(db, flow)["after_big"] == "skipped"
    run(db)
    run(db)
    assert (state(db, flow)["join"], records.flow(db, flow).state) == ("done", "done")


def test_cancel_ends_what_was_not_sent_at_once_and_waits_for_the_rest(db: Db) -> None:
    flow = start(db, steps={"a": app(each=[1, 2, 3]), "b": app("a")})
    tasks = records.queued(db, 5.0)
    number = moves.attempt(db, tasks[0], "edge", "x", "", 5.0)
    assert moves.cancel(db, flow, "enough", 6.0) == "cancelling"
    assert [one.task for one in records.called_off(db)] == [tasks[0]]
    assert state(db, flow) == {"a": "running", "b": "cancelled"}
    assert not records.queued(db, 9.0)
    assert moves.cancel(db, flow, "again", 6.0) == "cancelling"
    assert moves.end(db, tasks[0], number, CANCELLED, 7.0)
    assert records.flow(db, flow).state == "cancelled"
    assert records.flow(db, flow).reason == "enough"
    assert moves.cancel(db, flow, "late", 8.0) == "cancelled"


def test_a_task_that_was_done_before_it_heard_of_the_cancel_stays_done(db: Db) -> None:
    flow = start(db, steps={"a": app()})
    task, number = send(db)[0]
    moves.cancel(db, flow, "enough", 6.0)
    assert moves.end(db, task, number, DONE, 7.0)
    assert not moves.end(db, task, number, CANCELLED, 8.0)
    assert (records.task(db, task).state, records.flow(db, flow).state) == ("done", "done")


def test_a_failure_while_it_is_called_off_is_not_tried_again(db: Db) -> None:
    flow = start(db, steps={"a": app(retries=3), "b": app("a")})
    task, number = send(db)[0]
    moves.cancel(db, flow, "enough", 6.0)
    assert moves.end(db, task, number, FAILED, 7.0)
    assert state(db, flow) == {"a": "failed", "b": "cancelled"}
    assert records.flow(db, flow).state == "cancelled"


def test_run_again_from_a_step_keeps_what_is_before_it(db: Db) -> None:
    flow = start(db, steps={"a": app(), "b": app("a"), "c": app("b"), "other": app("a")})
    for _ in range(3):
        run(db, result={"n": 1})
    assert records.flow(db, flow).state == "done"
    assert rerun(db, flow, ["b"], 10.0) == ["b", "c"]
    assert records.flow(db, flow).state == "running"
    assert state(db, flow) == {"a": "done", "b": "running", "c": "waiting", "other": "done"}
    assert [number for _, number in send(db, 11.0)] == [2]
    old = records.tasks(db, flow, step="b")[0].id
    assert not moves.end(db, old, 1, FAILED, 11.0)
    moves.end(db, old, 2, DONE, 12.0)
    run(db, now=13.0)
    assert records.flow(db, flow).state == "done"
    assert {one.attempt for one in records.tasks(db, flow, step="a")} == {1}
    with pytest.raises(errors.NotFound, match="no step `bb`"):
        rerun(db, flow, ["bb"], 14.0)
    with pytest.raises(errors.IllegalTransition, match="nothing of flow"):
        rerun(db, flow, [], 14.0)


def test_run_again_without_a_name_keeps_tasks_that_are_done(db: Db) -> None:
    flow = start(db, steps={"many": app(each=[1, 2, 3]), "after": app("many")})
    sent = send(db)
    for one, how in zip(sent, (DONE, FAILED, DONE), strict=True):
        moves.end(db, *one, how, 6.0)
    assert rerun(db, flow, [], 7.0) == ["many", "after"]
    assert [task for task, _ in send(db, 8.0)] == [sent[1][0]]
    moves.end(db, sent[1][0], 2, DONE, 9.0)
    run(db, now=10.0)
    assert records.flow(db, flow).state == "done"


def test_run_again_beside_a_failure_skips_what_still_needs_that(db: Db) -> None:
    flow = start(
        db, steps={"bad": app(), "good": app(), "mid": app("bad"), "end": app("mid", "good")}
    )
    tasks = {records.task(db, task).step: task for task in records.queued(db, 5.0)}
    for step, how in (("bad", FAILED), ("good", DONE)):
        number = moves.attempt(db, tasks[step], "edge", "x", "", 5.0)
        moves.end(db, tasks[step], number, how, 6.0)
    assert rerun(db, flow, ["good"], 7.0) == ["good", "end"]
    assert records.steps(db, flow)[3].reason == "`bad` failed"
    run(db, now=8.0)
    assert records.flow(db, flow).state == "failed"


def test_run_again_fences_what_is_under_way(db: Db) -> None:
    flow = start(db, steps={"a": app()})
    task, number = send(db)[0]
    rerun(db, flow, ["a"], 6.0)
    assert [one.number for one in records.called_off(db)] == [1]
    assert not moves.end(db, task, number, DONE, 7.0)
    assert send(db, 8.0) == [(task, 2)]


def test_data_that_is_gone_is_made_again_and_its_reader_waits(db: Db) -> None:
    flow = start(db, steps={"a": app(), "b": app("a", each=[1, 2]), "c": app("b")})
    run(db)
    reader, waiting = records.queued(db, 6.0)
    number = moves.attempt(db, reader, "edge", "x", "", 6.0)
    producer = records.tasks(db, flow, step="a")[0].id
    assert stale(db, producer, 7.0, "its manifest is gone", consumer=reader)
    assert {records.task(db, one).state for one in (reader, waiting)} == {"waiting"}
    assert not moves.end(db, reader, number, FAILED, 7.5)
    assert send(db, 8.0) == [(producer, 2)]
    assert records.flow(db, flow).open == 3
    moves.end(db, producer, 2, DONE, 9.0)
    assert records.queued(db, 9.0) == [reader, waiting]
    run(db, now=10.0)
    run(db, now=11.0)
    assert records.flow(db, flow).state == "done"
    assert not stale(db, producer, 12.0)


def test_data_that_cannot_be_made_again_fails_its_readers(db: Db) -> None:
    flow = start(db, steps={"a": app(), "b": app("a"), "c": app("b")})
    run(db)
    reader, number = send(db, 6.0)[0]
    producer = records.tasks(db, flow, step="a")[0].id
    assert stale(db, producer, 7.0, consumer=reader)
    run(db, FAILED, now=8.0)
    assert state(db, flow) == {"a": "failed", "b": "failed", "c": "skipped"}
    assert records.flow(db, flow).state == "failed"
    assert number == 1


def test_data_that_cannot_be_made_again_is_done_without_where_that_is_allowed(db: Db) -> None:
    flow = start(db, steps={"a": app(on_failure="continue"), "b": app("a", each=[1, 2])})
    run(db)
    (reader, _), (other, number) = send(db, 6.0)
    producer = records.tasks(db, flow, step="a")[0].id
    assert stale(db, producer, 7.0, consumer=reader)
    run(db, FAILED, now=8.0)
    assert records.queued(db, 9.0) == [reader]
    moves.end(db, other, number, DONE, 9.0)
    run(db, now=10.0)
    assert (state(db, flow)["a"], records.flow(db, flow).state) == ("failed", "done")


def test_a_reader_that_fails_for_want_of_data_skips_what_follows_it_at_once(db: Db) -> None:
    flow = start(db, steps={"a": app(), "b": app("a", each=[1, 2]), "c": app("b")})
    run(db)
    (reader, _), (other, number) = send(db, 6.0)
    assert stale(db, records.tasks(db, flow, step="a")[0].id, 7.0, consumer=reader)
    run(db, FAILED, now=8.0)
    assert state(db, flow) == {"a": "failed", "b": "running", "c": "skipped"}
    moves.end(db, other, number, DONE, 9.0)
    assert records.flow(db, flow).state == "failed"


def _nested() -> dict[str, Step]:
    inner = Flow(
        name="inner",
        params={"n": 0},
        steps={"x": app(parameters={"n": "{n}"}), "y": app("x", outputs=("out.dat",))},
        outputs={"data": "y/out.dat", "all": "x"},
    )
    return {
        "a": app(),
        "sub": Step(needs=("a",), flow=inner, each=[1, 2], parameters={"n": "{item}"}, retries=1),
        "end": app(
            "sub", parameters={"r": "{sub.result}"}, inputs=(Take(step="sub", output="data"),)
        ),
    }


def _begin(db: Db) -> tuple[int, list[int]]:
    flow = start(db, steps=_nested())
    run(db)
    found = [start_child(db, task, 6.0) for task in records.queued(db, 6.0)]
    return flow, [one for one in found if one]


def test_a_flow_within_ends_the_task_that_it_is(db: Db) -> None:
    flow, inner = _begin(db)
    assert len(inner) == 2
    assert [records.definition(db, one).params for one in inner] == [{"n": 1}, {"n": 2}]
    run(db, now=7.0, result="x")
    for task, number in send(db, 8.0):
        assert moves.end(db, task, number, DONE, 9.0, result="y")
    assert [records.flow(db, one).state for one in inner] == ["done", "done"]
    asked = make_order(db, records.queued(db, 10.0)[0], 10.0)
    assert asked is not None
    assert asked.definition.parameters["r"] == [{"data": "y", "all": "x"}] * 2
    sources = asked.inputs[0].sources
    assert [(one.flow, one.step, one.output) for one in sources] == [
        (one, "y", "out.dat") for one in inner
    ]
    run(db, now=11.0)
    assert records.flow(db, flow).state == "done"


def test_a_flow_within_that_fails_is_tried_again_as_a_new_one(db: Db) -> None:
    flow, inner = _begin(db)
    first = records.tasks(db, inner[0], step="x")[0].id
    moves.end(db, first, moves.attempt(db, first, "edge", "x", "", 7.0), FAILED, 8.0)
    assert records.flow(db, inner[0]).state == "failed"
    (again,) = [task for task in records.queued(db, 99.0) if records.task(db, task).flow == flow]
    child = start_child(db, again, 100.0)
    assert child not in (None, *inner)
    with pytest.raises(errors.IllegalTransition, match="nested in step `sub`"):
        rerun(db, inner[0], [], 101.0)


def test_cancel_goes_down_and_comes_back_up(db: Db) -> None:
    flow, inner = _begin(db)
    sent = send(db, 7.0)
    assert moves.cancel(db, flow, "enough", 8.0) == "cancelling"
    assert {records.flow(db, one).state for one in inner} == {"cancelling"}
    assert {one.task for one in records.called_off(db)} == {task for task, _ in sent}
    for task, number in sent:
        moves.end(db, task, number, CANCELLED, 9.0)
    assert {records.flow(db, one).state for one in (flow, *inner)} == {"cancelled"}


def test_what_comes_out_is_delivered_before_the_flow_is_done(db: Db) -> None:
    flow = start(db, steps={"a": app()}, to="file:///there/")
    assert not moves.delivered(db, flow, 2.0)
    run(db)
    assert records.flow(db, flow).state == "staging_out"
    assert moves.delivered(db, flow, 9.0)
    assert records.flow(db, flow).state == "done"
    other = start(db, "other", steps={"a": app()}, to="file:///there/")
    run(db)
    moves.delivered(db, other, 9.0, trouble="no room")
    assert (records.flow(db, other).state, records.flow(db, other).reason) == ("failed", "no room")


def test_a_task_that_cannot_be_sent_now_says_why(db: Db) -> None:
    start(db, steps={"a": app()})
    (task,) = records.queued(db, 5.0)
    assert moves.postpone(db, task, "no agent listens for site x", 60.0)
    assert records.queued(db, 59.0) == []
    assert records.queued(db, 60.0) == [task]
    assert moves.give_up(db, task, "there is no site x", 61.0)
    assert not moves.give_up(db, task, "twice", 61.0)
    assert not moves.postpone(db, task, "late", 62.0)


def test_a_long_chain_is_skipped_without_calls_in_calls(db: Db) -> None:
    steps = {"s0": app()} | {f"s{at}": app(f"s{at - 1}") for at in range(1, 3000)}
    flow = start(db, steps=steps)
    run(db, FAILED)
    found = records.flow(db, flow)
    assert (found.state, found.open) == ("failed", 0)
    assert rerun(db, flow, [], 9.0)[-1] == "s2999"


def test_a_wide_fan_in_costs_each_end_the_same(db: Db) -> None:
    steps = {f"s{at}": app() for at in range(2000)}
    steps["last"] = app(*steps)
    flow = start(db, steps=steps)
    for _ in range(3):
        run(db)
    found = records.flow(db, flow)
    assert (found.state, found.open) == ("done", 0)


def test_a_step_that_stays_called_off_keeps_its_flow_from_being_done(db: Db) -> None:
    steps = {"a": app(), "many": app(each=[1, 2])}
    flow = start(db, steps=steps, to="file:///there/")
    sent = send(db)
    moves.end(db, *sent[1], DONE, 6.0)
    moves.cancel(db, flow, "enough", 7.0)
    for one in (sent[0], sent[2]):
        moves.end(db, *one, CANCELLED, 8.0)
    assert rerun(db, flow, ["a"], 9.0) == ["a"]
    assert not stale(db, sent[1][0], 10.0), "nobody reads from a step that was called off"
    run(db, now=11.0)
    row = records.flow(db, flow)
    assert (row.state, row.reason) == ("cancelled", "`many` was cancelled")


@pytest.mark.parametrize("trouble", ["no room", ""])
def test_what_did_not_get_to_where_it_was_to_go_is_sent_once_more(db: Db, trouble: str) -> None:
    flow = start(db, steps={"a": app()}, to="file:///there/")
    run(db)
    if trouble:
        assert moves.delivered(db, flow, 6.0, trouble)
    else:
        assert moves.cancel(db, flow, "enough", 6.0) == "cancelled"
    assert rerun(db, flow, [], 7.0) == []
    assert records.flow(db, flow).state == "staging_out"
    assert moves.delivered(db, flow, 8.0)
    assert records.flow(db, flow).state == "done"
    with pytest.raises(errors.IllegalTransition, match="nothing of flow"):
        rerun(db, flow, [], 9.0)


def test_the_result_of_an_old_attempt_is_nobodys(db: Db) -> None:
    flow = start(db, steps={"a": app(retries=2)})
    task, number = send(db)[0]
    assert moves.set_result(db, task, number, {"n": 1})
    moves.fence(db, task, 6.0, "silent")
    assert not moves.set_result(db, task, number, {"n": 2}), "it is fenced"
    second = send(db, 9.0)[0][1]
    assert records.tasks(db, flow)[0].result == "", "each attempt finds out on its own"
    assert not moves.set_result(db, task, number, {"n": 3}), "it is not the current one"
    assert moves.end(db, task, second, DONE, 10.0)
    assert records.tasks(db, flow)[0].result == ""


def test_a_state_that_no_site_can_say_changes_nothing(db: Db) -> None:
    flow = start(db, steps={"a": app()})
    task, number = send(db)[0]
    key = f"flow.{flow}.{task}.{number}"
    for word in ("skipped", "asleep"):
        assert not moves.hear(db, key, 5, word, "", "", "", 6.0)
    assert records.task(db, task).state == "ready"
    assert moves.hear(db, key, 1, "running", "", "", "", 7.0)
    assert moves.end(db, task, number, DONE, 8.0)
    assert records.flow(db, flow).state == "done"


def test_a_task_that_all_its_sites_refuse_goes_to_no_other(db: Db) -> None:
    step = app(sites=("{item}",), each=["x"], on_failure="other_site", retries=3)
    flow = start(db, steps={"a": step})
    run(db, AttemptEnd(state="rejected", reason="no such application"))
    assert not send(db, 99.0)
    assert records.flow(db, flow).reason == "`a` failed: refused by x"


@pytest.mark.parametrize("key", ["", "flow.1.1.1", "a\nb", "x" * 201, "\ud800"])
def test_a_key_that_is_not_a_persons_is_refused(db: Db, key: str) -> None:
    with pytest.raises(errors.BadFlow, match="cannot be the key"):
        start(db, key, steps={"a": app()})


@pytest.mark.parametrize(
    "value, state, words",
    [
        (True, "done", ""),
        (False, "skipped", "`x` does not hold"),
        (None, "skipped", "`x` does not hold"),
        (1, "failed", "neither true nor false; compare it"),
        ("yes", "failed", "`x` is 'yes', neither true nor false"),
    ],
)
def test_a_condition_is_true_or_false(db: Db, value: object, state: str, words: str) -> None:
    flow = start(db, params={"x": value}, steps={"a": app(when="x")})
    run(db)
    found = records.steps(db, flow)[0]
    assert found.state == state
    assert words in found.reason


def test_names_that_templates_make_stay_below_the_folder_of_the_task(db: Db) -> None:
    flow = start(db, steps={"a": app(each=["ok.dat", "../x", "/x"], outputs=("{item}",))})
    assert len(send(db)) == 1
    tasks = records.tasks(db, flow)
    assert [one.state for one in tasks] == ["ready", "failed", "failed"]
    assert "no name of a file" in tasks[1].reason


def test_a_place_beyond_every_list_stands_for_nothing(db: Db) -> None:
    far = "9" * 5000
    flow = start(db, params={"x": [1]}, steps={"a": app(parameters={"q": f"{{x.{far}}}"})})
    assert not send(db)
    assert "stands for nothing" in records.flow(db, flow).reason
    assert len(records.flow(db, flow).reason) < 300
