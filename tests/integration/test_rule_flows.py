"""Rules that start workflows: one for an event, a point of a sweep or a set, exactly once."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

import pytest

from pilotage.base import crash
from pilotage.flow import moves, read, records
from pilotage.flow.model import NewFlow
from pilotage.flow.records import FlowRow
from pilotage.flow.rerun import rerun
from pilotage.job.model import State
from pilotage.job.records import Selection
from pilotage.result import story
from tests.rigs.project.project import Rig

#: Counts the lines of a file, then writes that many lines; what it found is its result.
FLOW = """
name = "count"
required = ["raw"]
to = "home"

[params]
level = 1

[step.count]
inputs = [{ from = "{raw}", as = "in.txt" }]
run = ["sh", "-c", "wc -l < in.txt > lines.json"]
outputs = ["lines.json"]
result = "lines.json"

[step.write]
run = ["sh", "-c", "echo $0 $1 > sum.txt", "{count.result}", "{level}"]
outputs = ["sum.txt"]

[outputs]
lines = "count/lines.json"
sum = "write/sum.txt"
"""
RULE = """
[rule.start]
files = "raw/*.txt"
flow = "count.toml"
params = { raw = "{path}" }
"""
AFTER = """
[rule.after]
job = "count"
run = ["sh", "-c", "echo $0 > $1", "{ended.result.lines}", "{base}/seen"]
"""


def make(root: Path, rules: str = RULE, flow: str = FLOW) -> Rig:
    (root / "raw").mkdir()
    (root / "count.toml").write_text(flow)
    return Rig(root, rules)


def put(rig: Rig, name: str, lines: int = 3) -> None:
    temporary = rig.root / "raw" / f".{name}"
    temporary.write_text("x\n" * lines)
    temporary.rename(rig.root / "raw" / name)


def flows(rig: Rig) -> list[FlowRow]:
    with rig.project() as project:
        return records.flows(project.db)


def outputs(rig: Rig, name: str = "sum.txt") -> list[str]:
    found = (rig.root / "home").rglob(name)
    return sorted(one.read_text() for one in found if not any(map(Path.is_symlink, one.parents)))


async def test_a_file_starts_a_flow(tmp_path: Path):
    rig = make(tmp_path)
    put(rig, "a.txt")
    await rig.finish()
    (flow,), (job,) = flows(rig), rig.jobs("start")
    assert (flow.state, flow.name, flow.owner, flow.source) == ("done", "count", job.owner, "rule")
    assert (job.state, job.rule, job.attempt) == (State.DONE, "start", 1)
    assert outputs(rig) == ["3 1\n"]


async def test_the_end_of_a_flow_is_an_event_with_its_results(tmp_path: Path):
    rig = make(tmp_path, RULE + AFTER)
    put(rig, "a.txt", 7)
    await rig.finish()
    (seen,), (job,) = rig.jobs("after"), rig.jobs("start")
    assert (rig.root / "seen").read_text() == "7\n"
    facts = seen.binding.data
    assert facts["result"] == {"lines": 7, "sum": None}
    assert (facts["flow"], facts["name"], facts["rule"]) == (1, "start", "start")
    assert {Path(one).name for one in facts["outputs"]} == {"lines.json", "sum.txt"}
    assert all(map(os.path.isfile, facts["outputs"]))
    assert seen.parent == job.id


async def test_a_flow_that_nobody_but_a_person_started_ends_as_an_event_too(tmp_path: Path):
    rig = make(tmp_path, AFTER)
    put(rig, "a.txt", 5)
    async with rig.live() as project:
        flow = read.read(FLOW, base=tmp_path, params={"raw": "raw/a.txt"})
        with project.db.transaction() as db:
            moves.submit(db, NewFlow(flow=flow, key="mine", owner="me"), project.clock.now())
        project.poke()
        await rig.ended(1, "after")
    (seen,) = rig.jobs("after")
    assert (seen.state, seen.binding.data["name"]) == (State.DONE, "count")
    assert (rig.root / "seen").read_text() == "5\n"


async def test_a_sweep_starts_a_flow_for_each_point(tmp_path: Path):
    rig = make(tmp_path, RULE + "sweep = { level = [4, 5] }\n")
    put(rig, "a.txt")
    put(rig, "b.txt", 2)
    await rig.finish()
    assert outputs(rig) == ["2 4\n", "2 5\n", "3 4\n", "3 5\n"]


GATHERED = """
name = "count"
required = ["files"]
to = "home"

[step.write]
inputs = ["{files}"]
run = ["sh", "-c", "cat x-*.txt > sum.txt"]
outputs = ["sum.txt"]
"""


async def test_a_gathered_set_starts_one_flow(tmp_path: Path):
    rule = """
[rule.start]
files = "raw/{set}-{part}.txt"
gather = { by = "{match.set}", count = 2 }
flow = "count.toml"
params = { files = "{paths}" }
"""
    rig = make(tmp_path, rule, GATHERED)
    for name, lines in (("x-1", 1), ("x-2", 2), ("y-1", 4)):
        put(rig, f"{name}.txt", lines)
    await rig.finish()
    assert [one.state for one in flows(rig)] == ["done"]
    assert outputs(rig) == ["x\n" * 3]


# -- failures, and what people do ------------------------------------------------------------------

FRAGILE = """
name = "fragile"

[step.first]
run = ["sh", "-c", "echo x >> {base}/first"]

[step.second]
needs = ["first"]
run = ["sh", "-c", "test -e {base}/good"]
"""


def fragile(root: Path, more: str = "") -> Rig:
    rule = f'[rule.start]\nfiles = "raw/*.txt"\nflow = "count.toml"\n{more}'
    return make(root, rule, FRAGILE.replace("{base}", str(root)))


async def test_the_failure_of_a_flow_is_that_of_the_job_and_retry_goes_on_where_it_failed(
    tmp_path: Path,
):
    rig = fragile(tmp_path)
    put(rig, "a.txt")
    async with rig.live() as project:
        (job,) = await rig.ended(1, "start")
        assert job.state is State.FAILED
        assert "`second` failed" in job.reason
        (rig.root / "good").touch()
        project.retry([job.id])
        await rig.until(lambda: rig.jobs("start", State.DONE))
    assert (rig.root / "first").read_text() == "x\n"
    assert [one.state for one in flows(rig)] == ["done"]


async def test_a_rule_retries_what_failed_of_a_flow(tmp_path: Path):
    rig = fragile(tmp_path, 'retry = { attempts = 2, delay = "2s" }\n')
    put(rig, "a.txt")
    async with rig.live():
        await rig.until(lambda: any(one.state == "failed" for one in flows(rig)))
        (rig.root / "good").touch()
        await rig.until(lambda: rig.jobs("start", State.DONE))
    assert (rig.root / "first").read_text() == "x\n"


async def test_a_flow_that_is_run_again_takes_its_job_along(tmp_path: Path):
    rig = fragile(tmp_path)
    put(rig, "a.txt")
    async with rig.live() as project:
        await rig.until(lambda: rig.jobs("start", State.FAILED))
        (rig.root / "good").touch()
        with project.db.transaction() as db:
            rerun(db, 1, [], project.clock.now())
        project.poke()
        await rig.until(lambda: rig.jobs("start", State.DONE))
    (job,) = rig.jobs("start")
    assert job.attempt == 2


LONG = 'name = "long"\n[step.sleep]\nrun = ["sleep", "600"]\n'


async def test_a_job_that_is_called_off_calls_its_flow_off(tmp_path: Path):
    rig = make(tmp_path, '[rule.start]\nfiles = "raw/*.txt"\nflow = "count.toml"\n', LONG)
    put(rig, "a.txt")
    async with rig.live() as project:
        await rig.until(lambda: rig.jobs("long/sleep", State.RUNNING))
        (job,) = rig.jobs("start")
        assert job.state is State.RUNNING
        project.cancel([job.id])
        await rig.until(lambda: rig.jobs("start", State.CANCELLED))
        assert [one.state for one in flows(rig)] == ["cancelled"]
        assert rig.jobs("long/sleep", State.CANCELLED)


async def test_a_flow_that_is_held_goes_on_when_it_is_released(tmp_path: Path):
    waits = f"until test -e {tmp_path}/go; do sleep 0.05; done"
    first = f'[step.first]\nrun = ["sh", "-c", "echo x >> {tmp_path}/first"]\n'
    second = f'[step.second]\nneeds = ["first"]\nrun = ["sh", "-c", "{waits}"]\n'
    rule = '[rule.start]\nfiles = "raw/*.txt"\nflow = "count.toml"\n'
    rig = make(tmp_path, rule, f'name = "waits"\n{first}{second}')
    put(rig, "a.txt")
    async with rig.live() as project:
        await rig.until(lambda: rig.jobs("waits/second", State.RUNNING))
        (job,) = rig.jobs("start")
        project.hold([job.id])
        await rig.until(lambda: rig.jobs("start", State.HELD))
        assert [one.state for one in flows(rig)] == ["cancelled"]
        project.release([job.id])
        await rig.until(lambda: len(rig.jobs("waits/second", State.RUNNING)) == 1)
        # Who cancels the flow itself cancels the job, too.
        with project.db.transaction() as db:
            moves.cancel(db, 1, "enough", project.clock.now())
        project.poke()
        await rig.until(lambda: rig.jobs("start", State.CANCELLED))
        assert rig.jobs("start")[0].reason == "enough"
        (rig.root / "go").touch()
        project.retry([job.id])
        await rig.until(lambda: rig.jobs("start", State.DONE))
    assert (rig.root / "first").read_text() == "x\n"


async def test_a_held_job_starts_no_flow_until_it_is_released(tmp_path: Path):
    rig = make(tmp_path, RULE + "max_repeats = 1\n")
    put(rig, "a.txt")
    async with rig.live() as project:
        await rig.until(lambda: rig.jobs("start", State.DONE))
        put(rig, "a.txt", 9)
        await rig.until(lambda: rig.jobs("start", State.HELD))
        (held,) = rig.jobs("start", State.HELD)
        assert "loop guard" in held.reason
        assert len(flows(rig)) == 1
        project.release([held.id])
        await rig.until(lambda: len(rig.jobs("start", State.DONE)) == 2)


async def test_a_limit_lets_so_many_flows_run_at_once(tmp_path: Path):
    waits = "until test -e {go}; do sleep 0.05; done"
    slow = f'name = "slow"\n[step.one]\nrun = ["sh", "-c", "{waits}"]\n'
    rule = '[rule.start]\nfiles = "raw/*.txt"\nflow = "count.toml"\nlimit = "one"\n'
    rig = make(tmp_path, rule, slow.replace("{go}", str(tmp_path / "go")))
    for name in "abc":
        put(rig, f"{name}.txt")
    async with rig.live():
        await rig.until(lambda: len(rig.jobs("start")) == 3)
        await rig.until(lambda: rig.jobs("slow/one", State.RUNNING))
        assert len(flows(rig)) == 1
        (rig.root / "go").touch()
        await rig.until(lambda: len(rig.jobs("start", State.DONE)) == 3)
    ended = sorted((one.created, one.ended or 0.0) for one in flows(rig))
    assert all(later[0] >= before[1] for before, later in itertools.pairwise(ended))


async def test_a_flow_that_feeds_its_own_rule_is_held_in_the_end(tmp_path: Path):
    flow = 'name = "loop"\n[step.one]\nrun = ["true"]\n'
    rules = """
[rule.start]
files = "raw/*.txt"
flow = "count.toml"

[rule.again]
job = "loop/one"
flow = "count.toml"
max_depth = 3
"""
    rig = make(tmp_path, rules, flow)
    put(rig, "a.txt")
    async with rig.live():
        await rig.until(lambda: rig.jobs("again", State.HELD))
    held = rig.jobs("again", State.HELD)
    assert "caused itself 3 times" in held[0].reason
    assert len(flows(rig)) == 4


async def test_a_flow_whose_results_feed_its_own_rule_is_held_in_the_end(tmp_path: Path):
    step = '[step.one]\nrun = ["touch", "x.txt"]\noutputs = ["x.txt"]\n'
    flow = f'name = "loop"\nto = "raw/out"\n{step}'
    rule = '[rule.start]\nfiles = "raw/**/*.txt"\nflow = "count.toml"\nmax_depth = 3\n'
    rig = make(tmp_path, rule, flow)
    put(rig, "a.txt")
    async with rig.live():
        await rig.until(lambda: rig.jobs("start", State.HELD))
    assert len(flows(rig)) == 3
    (held,) = rig.jobs("start", State.HELD)
    assert (held.depth, "caused itself 3 times" in held.reason) == (3, True)


async def test_the_story_of_a_job_names_its_flow_and_its_steps(tmp_path: Path):
    rig = make(tmp_path)
    put(rig, "a.txt")
    await rig.finish()
    with rig.project() as project:
        (job,) = project.jobs(Selection(name="start"))
        told = story.tell(project.db, job.id)
    assert any("as flow 1" in detail for one in told.moments for detail in one.details)
    assert [child.name for child in told.children] == ["count/count", "count/write"]


async def test_an_input_that_changed_before_the_flow_began_calls_it_off(tmp_path: Path):
    rig = make(tmp_path, RULE + "rate = '1/h'\n")
    put(rig, "a.txt")
    put(rig, "b.txt")
    async with rig.live() as project:
        await rig.until(lambda: rig.jobs("start", State.DONE))
        (late,) = rig.jobs("start", State.QUEUED)
        assert late.not_before > project.clock.now() + 3000
        (rig.root / "raw" / Path(late.binding.path).name).unlink()
        # Who lets it go on does not wait for its turn any more.
        project.hold([late.id])
        project.release([late.id])
        await rig.until(lambda: rig.jobs("start", State.CANCELLED))
    assert len(flows(rig)) == 1


# -- what changes ----------------------------------------------------------------------------------


async def test_a_changed_flow_is_a_changed_rule(tmp_path: Path):
    rig = make(tmp_path)
    put(rig, "a.txt")
    async with rig.live() as project:
        await rig.until(lambda: rig.jobs("start", State.DONE))
        digest = project.rules()["start"].digest
        temporary = rig.root / ".count.toml"
        temporary.write_text(FLOW.replace("level = 1", "level = 8"))
        temporary.rename(rig.root / "count.toml")
        await rig.until(lambda: project.rules()["start"].digest != digest)
        await rig.until(project.rules_in_force)
        put(rig, "b.txt", 2)
        await rig.until(lambda: len(rig.jobs("start", State.DONE)) == 2)
    assert outputs(rig) == ["2 8\n", "3 1\n"]


async def test_a_mistake_in_a_flow_leaves_the_rule_as_it_was(tmp_path: Path):
    rig = make(tmp_path)
    async with rig.live() as project:
        (rig.root / "count.toml").write_text(FLOW.replace("run =", "runs ="))
        await rig.until(lambda: project.read_books().failed)
        put(rig, "a.txt")
        await rig.until(lambda: rig.jobs("start", State.DONE))
        digest = project.rules()["start"].digest
        (rig.root / "count.toml").write_text(FLOW.replace("level = 1", "level = 6"))
        await rig.until(lambda: project.rules()["start"].digest != digest)


# -- exactly once ----------------------------------------------------------------------------------

FILES = 4
#: Where an event becomes a flow, and where the flow and its job end.
POINTS = (
    "intake.before_commit", "intake.after_commit", "flow.begin", "flow.begun", "flow.ended",
)  # fmt: skip


@pytest.mark.crash_points
@pytest.mark.parametrize("point", POINTS)
def test_killed_on_the_way_from_a_file_to_a_flow(tmp_path: Path, point: str):
    assert point in crash.POINTS
    rig = make(tmp_path)
    for number in range(FILES):
        put(rig, f"{number}.txt", number + 1)
    first = rig.start(env={"PILOTAGE_CRASH_AT": f"{point}:1"})
    try:
        assert first.wait(timeout=120) == -signal.SIGKILL, rig.said
    finally:
        first.kill()
        first.wait()
    assert rig.run() == 0, rig.said
    assert rig.run() == 0, rig.said
    jobs = rig.jobs("start")
    assert [one.state for one in jobs] == [State.DONE] * FILES
    assert [one.state for one in flows(rig)] == ["done"] * FILES
    assert outputs(rig) == [f"{number + 1} 1\n" for number in range(FILES)]
    assert len(rig.jobs("count/*", State.DONE)) == 2 * FILES
