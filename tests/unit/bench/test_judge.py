"""What benchmarks conclude: promises, windows of time, goals and tables."""

from __future__ import annotations

from bench import table
from bench.figure import Goal, Report, figure
from bench.queue.steady import window
from bench.swarm.swarm import Start
from bench.swarm.witness import Attempt, Record, judge


def record(*attempts: tuple[int, int, str]) -> Record:
    jobs = dict.fromkeys((job for job, _, _ in attempts), "done")
    done = [job for job, _, state in attempts if state == "done"]
    return Record(
        jobs, tuple(Attempt(*one) for one in attempts), {job: done.count(job) for job in done}
    )


def test_a_job_that_began_and_ended_once_breaks_no_promise():
    assert judge([Start("1.1", 5, 0.0)], set(), record((1, 1, "done"))).violations == 0


def test_a_second_start_is_right_only_after_the_loss_of_the_pilot():
    starts = [Start("1.1", 5, 0.0), Start("1.2", 6, 1.0)]
    store = record((1, 1, "lost"), (1, 2, "done"))
    assert judge(starts, {5}, store).violations == 0
    assert judge(starts, {6}, store).doubled == 1


def test_an_attempt_on_two_pilots_is_seen():
    starts = [Start("1.1", 5, 0.0), Start("1.1", 6, 1.0)]
    verdict = judge(starts, {5}, record((1, 1, "done")))
    assert verdict.twice == 1


def test_a_job_that_ended_twice_or_not_at_all_is_seen():
    twice = record((1, 1, "done"), (1, 2, "done"))
    assert judge([], set(), twice).unended == 1
    never = Record({1: "running"}, (Attempt(1, 1, "running"),), {})
    assert judge([], set(), never).unended == 1


def test_a_start_that_the_store_does_not_know_is_seen():
    assert judge([Start("2.1", 5, 0.0)], set(), record((1, 1, "done"))).unknown == 1


def test_a_queue_that_ran_empty_ends_the_time_that_counts():
    starts = [Start(f"{number}.1", 1, number / 10) for number in range(21)]
    assert window(starts, 1.0, 1.5) == (6, 0.5)
    assert window(starts, 1.0, 9.0) == (11, 1.0)


def test_a_figure_with_several_goals_meets_them_all_or_none():
    peers = {"Ray": [100.0], "Dask": [50.0]}
    goals = [Goal(1.5, "Ray"), Goal(4, "Dask"), Goal(0.75, "limit")]
    one = figure("tasks", "tasks/s", [200.0], better="more", peers=peers, limit=[250.0], goal=goals)
    assert one.goal == ">= 1.5x Ray; >= 4x Dask; >= 0.75x limit"
    assert one.met
    again = figure(
        "tasks", "tasks/s", [180.0], better="more", peers=peers, limit=[250.0], goal=goals
    )
    assert not again.met


def test_a_table_has_a_column_for_each_peer():
    one = figure("tasks", "ms", [2.0, 4.0], peers={"Ray": [6.0]}, limit=[1.5])
    other = figure("more", "ms", [2.0], peers={"Dask": [20.0]})
    lines = table.lines(Report("x", {"cores": 2}, [one, other]))
    assert lines[2] == (
        "| figure | unit | ours | spread | Ray (times better) | Dask (times better) "
        "| limit (reached) | goal | met |"
    )
    assert lines[4] == "| tasks | ms | 3 | 2 … 4 | 6 (2) |  | 1.5 (0.5) |  |  |"
    assert lines[5] == "| more | ms | 2 |  |  | 20 (10) |  |  |  |"
