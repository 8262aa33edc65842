"""The data of an agent's jobs: real transfers, a real batch queue, and a process that is killed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pilotage.agent import input_cache, job_limits
from pilotage.agent.app.model import Config, Parameter
from pilotage.agent.settings import RunningLimits
from pilotage.base import crash
from pilotage.data.transfer.model import MANIFEST
from pilotage.hub.project import Project
from pilotage.job.model import State
from tests.rigs.broker.agent_without_bus import Edge
from tests.rigs.cluster.web import Web, serving


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[Edge]:
    made = Edge(tmp_path / "agent")
    yield made
    made.kill()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Have a folder that applications may read and write."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def test_a_plain_job_runs_in_a_folder_of_its_own(edge: Edge) -> None:
    edge.app("plain", 'pwd > where; echo "$FOO" > foo; echo said', env={"FOO": "a {b}"})
    job = edge.post("plain")
    with edge.up():
        edge.done(job)
    place = edge.place(job)
    assert (place / "where").read_text().strip() == str(place)
    assert (place / "foo").read_text() == "a {b}\n"
    assert place.stat().st_mode & 0o777 == 0o700
    assert edge.ran() == [f"plain {job}"]
    with Project(edge.root) as project:
        (attempt,) = project.attempts(job)
    assert Path(attempt.dir, "stdout").read_text() == "said\n"
    assert edge.states(job) == [
        ("queued", "accept"), ("staging_in", "stage_in"), ("ready", "submit"),
        ("submitted", "queue"), ("running", "run"), ("done", "run"),
    ]  # fmt: skip


# -- inputs and outputs ----------------------------------------------------------------------------


def test_inputs_come_and_outputs_go_by_url(edge: Edge, data: Path) -> None:
    tree = data / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "-x").write_text("deep")
    (data / "-one.dat").write_text("one")
    sha256 = hashlib.sha256(b"one").hexdigest()
    with serving(data) as web:
        edge.app(
            "copy", "cat -- in/-renamed ./-one.dat t/deep/-x > -sum; mkdir r; echo r > r/-f",
            staging=edge.reach(data, port=web.port),
        )  # fmt: skip
        jobs = {
            scheme: edge.post(
                "copy",
                inputs=[
                    {"url": f"{url}/-one.dat", "path": "in/-renamed", "sha256": sha256},
                    {"url": f"{url}/-one.dat"},
                    {"url": f"{url}/tree/", "path": "t"},
                ],
                outputs=[
                    {"path": "-sum", "url": f"{url}/{scheme}/out"},
                    {"path": "r", "url": f"{url}/{scheme}/folder"},
                    {"path": "-sum", "url": f"{url}/{scheme}/both"},
                    {"path": "r", "url": f"{url}/{scheme}/both"},
                ],
            )
            for scheme, url in (("file", f"file://{data}"), ("http", web.url))
        }
        with edge.up():
            edge.done(*jobs.values())
    for scheme, job in jobs.items():
        came = data / scheme
        assert (came / "out" / "-sum").read_text() == "oneonedeep"
        assert (came / "folder" / "-f").read_text() == "r\n"
        assert {one.name for one in (came / "both").iterdir()} == {"-sum", "-f", MANIFEST}
        assert ("staging_out", "stage_out") in edge.states(job)
        assert edge.states(job)[-1] == ("done", "stage_out")
    places = {edge.place(job) for job in jobs.values()}
    beside = {one for place in places for one in place.parent.iterdir()}
    assert {one for one in beside if one.name != input_cache.FOLDER} == places


def test_a_wrong_sum_is_no_input(edge: Edge, data: Path) -> None:
    (data / "a").write_text("a")
    edge.app("never", "true", staging=edge.reach(data))
    job = edge.post("never", inputs=[{"url": f"file://{data}/a", "sha256": "0" * 64}])
    with edge.up():
        (found,) = edge.ended(job)
    assert found.state is State.FAILED
    assert "SHA-256" in found.reason
    assert (edge.ran(), edge.step(job)) == ([], "stage_in")


def test_a_job_waits_for_a_server_that_is_busy_and_others_do_not_wait_for_it(
    edge: Edge, data: Path
) -> None:
    (data / "a").write_text("a")
    with serving(data) as web:
        edge.app("read", "cat a > b", staging=edge.reach(data, port=web.port))
        slow = edge.post("read", inputs=[{"url": f"{web.url}/a"}], outputs=[
            {"path": "b", "url": f"{web.url}/out"}])  # fmt: skip
        quick = edge.post("read", inputs=[{"url": f"file://{data}/a"}])
        busy(web, "HEAD", "GET")
        with edge.up():
            edge.done(quick)
            edge.wait(lambda: "its data waits" in edge.job(slow).reason)
            assert edge.job(slow).state is State.STAGING_IN
            busy(web, "PUT", "MKCOL")
            edge.wait(lambda: edge.job(slow).state is State.STAGING_OUT)
            edge.wait(lambda: "its data waits" in edge.job(slow).reason)
            busy(web)
            edge.done(slow)
    assert (data / "out" / "b").read_text() == "a"
    assert sorted(edge.ran()) == sorted([f"read {quick}", f"read {slow}"])


def busy(web: Web, *methods: str) -> None:
    """Have a server say that it is busy, to whoever asks like this."""
    web.faults[:] = [
        lambda request: Response(status_code=503) if request.method in methods else None
    ]


def again(edge: Edge, job: int) -> None:
    """Have a job tried again that has failed."""
    with Project(edge.root) as project:
        project.retry([job])
        with project.change() as db:
            job_limits.settle(db, RunningLimits(), project.clock.now())


def test_results_that_may_not_be_there_fail_the_job(edge: Edge, data: Path) -> None:
    edge.app("write", "echo mine > out", staging=edge.reach(data))
    (data / "taken").mkdir()
    (data / "taken" / "out").write_text("another's")
    taken = edge.post("write", outputs=[{"path": "out", "url": f"file://{data}/taken"}])
    lacking = edge.post("write", outputs=[{"path": "none", "url": f"file://{data}/x"}])
    with edge.up():
        edge.ended(taken, lacking)
        again(edge, taken)
        found = edge.ended(taken, lacking)
    assert [one.state for one in found] == [State.FAILED] * 2
    assert [edge.step(one) for one in (taken, lacking)] == ["stage_out"] * 2
    assert [edge.blamed(one)[0] for one in (taken, lacking)] == ["staging"] * 2
    assert "there is no output none" in found[1].reason
    assert (data / "taken" / "out").read_text() == "another's"


LINKS = (
    "ln -s {folder}/secret out",
    "ln -s / d; ln -s d{folder}/secret out",
    "mkdir out; ln -s {folder}/secret out/x",
    "ln -s {folder} out",
    'here=$PWD; cd /; mv "$here" "$here.x"; ln -s {folder} "$here"',
)


def test_no_link_leads_out_of_the_folder(edge: Edge, data: Path) -> None:
    private = edge.root / "private"
    private.mkdir()
    for name in ("secret", "out"):
        (private / name).write_text("secret")
    jobs = []
    for number, script in enumerate(LINKS):
        edge.app(f"link{number}", script.format(folder=private), staging=edge.reach(data))
        to = f"file://{data}/to-{number}"
        jobs.append(edge.post(f"link{number}", outputs=[{"path": "out", "url": to}]))
    with edge.up():
        found = edge.ended(*jobs)
    ends = [(one.state, edge.step(one.id)) for one in found]
    assert ends == [(State.FAILED, "stage_out")] * len(LINKS), edge.told()
    assert not any("secret" in one.read_text() for one in data.rglob("*") if one.is_file())


# -- what runs -------------------------------------------------------------------------------------


def test_a_config_becomes_arguments(edge: Edge) -> None:
    edge.app(
        "keys", 'printf "%s\\n" "$@" > argv', argv=("--n", "{n}", "{label}", "{config}"),
        parameter={
            "n": Parameter(kind="integer"),
            "label": Parameter(kind="text", pattern="[a-z ;$()]+"),
        },
        config=Config(),
    )  # fmt: skip
    parser, sha256 = edge.program("parser", 'while read -r line; do echo "--$line"; done < "$1"')
    word = Parameter(kind="text", pattern="[-a-z]+", dash=True)
    edge.app(
        "words", 'printf "%s\\n" "$@" > argv', argv=("{*}", "end"), pins={parser: sha256},
        config=Config(format="words", program=(parser, "{file}"), word=word),
    )  # fmt: skip
    keys = edge.post("keys", config="n = 5\nlabel = a;$(id)\n", parameters={"n": 7})
    words = edge.post("words", config="a\nb\n")
    bad = edge.post("words", config="a;b\n")
    with edge.up():
        edge.done(keys, words)
        (found,) = edge.ended(bad)
    argv = (edge.place(keys) / "argv").read_text().splitlines()
    assert argv == ["--n", "7", "a;$(id)", "./pilotage-config"]
    assert (edge.place(words) / "argv").read_text().splitlines() == ["--a", "--b", "end"]
    assert found.state is State.FAILED
    assert f"words {bad}" not in edge.ran()


def test_what_runs_before_and_after(edge: Edge, data: Path) -> None:
    edge.app(
        "all", "cat made > out", before='printf "%s " "$@" > made; env > env.before; echo hm',
        after='echo "$1" >> out', preprocess_args=("{job}", "{n}"), postprocess_args=("{n}",),
        argv=("{n}",), parameter={"n": Parameter(kind="integer")}, env={"SITE": "x"},
        staging=edge.reach(data),
    )  # fmt: skip
    job = edge.post(
        "all", parameters={"n": 3}, outputs=[{"path": "out", "url": f"file://{data}/o"}]
    )
    with edge.up():
        edge.done(job)
    assert (data / "o" / "out").read_text() == f"{job} 3 3\n"
    assert edge.ran() == [f"all-preprocess {job}.1", f"all {job}", f"all-postprocess {job}.1"]
    env = (edge.place(job) / "env.before").read_text().splitlines()
    names = {line.partition("=")[0] for line in env}
    assert names <= {"PATH", "LANG", "HOME", "SITE", "PWD", "SHLVL", "_", "OLDPWD"}
    with Project(edge.root) as project:
        (attempt,) = project.attempts(job)
    assert Path(attempt.dir, "preprocess.out").read_text() == "hm\n"
    told = edge.states(job)
    assert [step for state, step in told if state == "staging_out"] == ["postprocess", "stage_out"]


def test_what_fails_before_keeps_the_job_from_running(edge: Edge) -> None:
    edge.app("fails", "true", before="echo no input; exit 7")
    job = edge.post("fails")
    with edge.up():
        (found,) = edge.ended(job)
    assert (found.state, edge.step(job)) == (State.FAILED, "preprocess")
    assert "status 7: no input" in found.reason
    assert edge.blamed(job)[0] == "application"
    assert edge.ran() == [f"fails-preprocess {job}.1"]


def test_what_was_allowed_when_it_came_may_not_be_any_more(edge: Edge, data: Path) -> None:
    (data / "a").write_text("a")
    names = ("disabled", "no-host", "another")
    for name in names:
        edge.app(name, "true", before="true", staging=edge.reach(data))
    jobs = {name: edge.post(name, inputs=[{"url": f"file://{data}/a"}]) for name in names}
    edge.app("disabled", "true", before="true", staging=edge.reach(data), enabled=False)
    edge.app("no-host", "true", before="true", staging=edge.reach(edge.root))
    edge.program("another", "echo another")
    with edge.up():
        ended = dict(zip(names, edge.ended(*jobs.values()), strict=True))
    found = {name: (one.state, *edge.blamed(one.id)) for name, one in ended.items()}
    assert found == dict.fromkeys(names, (State.FAILED, "policy", "policy"))
    assert edge.ran() == []
    assert not list(edge.folder.glob("*/edge/*"))


def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    edge = Edge(tmp_path / "agent", '[limits]\nfree = "900P"\n')
    edge.app("plain", "true")
    job = edge.post("plain")
    with edge.up():
        edge.wait(lambda: "must stay free" in edge.job(job).reason)
        assert edge.job(job).state is State.STAGING_IN
    edge.settle('[limits]\nfree = "1M"\n')
    with edge.up():
        edge.done(job)


# -- called off ------------------------------------------------------------------------------------


def cancel(edge: Edge, job: int) -> None:
    with Project(edge.root) as project:
        project.cancel([job])


@pytest.mark.parametrize("way", ["fetch", "send"])
def test_who_is_called_off_ends_its_transfer(edge: Edge, data: Path, way: str) -> None:
    (data / "big").write_bytes(os.urandom(8 << 20))
    with serving(data) as web:
        edge.app("big", f"[ -e big ] || cp {data}/big .", staging=edge.reach(data, port=web.port))
        if way == "fetch":
            web.pause = 1.0
            job = edge.post("big", inputs=[{"url": f"{web.url}/big"}])
        else:
            web.faults.append(lambda request: Hanging() if request.method == "PUT" else None)
            job = edge.post("big", outputs=[{"path": "big", "url": f"{web.url}/out"}])
        with edge.up():
            edge.wait(lambda: web.calls["PUT"] + web.sent)
            cancel(edge, job)
            (found,) = edge.ended(job)
            assert found.state is State.CANCELLED, edge.told()
            # One more piece may have been on its way.
            sent = web.sent
            edge.app("next", "true")
            edge.done(edge.post("next"))
            assert web.sent <= sent + (1 << 18)
    assert (f"big {job}" in edge.ran()) is (way == "send")


class Hanging(Response):
    """An answer that does not come."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await anyio.sleep(600)


def test_who_is_called_off_leaves_no_process(edge: Edge) -> None:
    # One that leaves its group, as daemons do, is found all the same.
    script = "setsid sh -c 'echo $$ > deep; sleep 1000' & echo $$ > self; sleep 1000"
    edge.app("before", "true", before=script)
    edge.app("after", "true", after=script)
    jobs = [edge.post(name) for name in ("before", "after")]
    with edge.up():
        pids = [pid for job in jobs for pid in waiting(edge, job)]
        for job in jobs:
            cancel(edge, job)
        assert [one.state for one in edge.ended(*jobs)] == [State.CANCELLED] * 2
        edge.wait(lambda: not any(map(alive, pids)))


def test_what_a_killed_agent_left_is_ended_before_it_begins_again(edge: Edge) -> None:
    script = (
        "mkdir lock || echo twice > twice; setsid sh -c 'echo $$ > deep; sleep 1000' &\n"
        "echo $$ > self; if [ -e again ]; then exit 0; fi; sleep 1000"
    )
    edge.app("once", "true", before=script)
    job = edge.post("once")
    with edge.up():
        pids = waiting(edge, job)
    assert any(map(alive, pids))
    place = edge.place(job)
    (place / "again").touch()
    (place / "lock").rmdir()
    with edge.up():
        edge.done(job)
    assert not any(map(alive, pids))
    assert not (place / "twice").exists()
    assert edge.ran() == [f"once-preprocess {job}.1"] * 2 + [f"once {job}"]


def waiting(edge: Edge, job: int) -> list[int]:
    """Wait until a program and its daemon have said which processes they are."""

    def there() -> bool:
        found = list(edge.folder.glob(f"*/edge/{job}.1"))
        return bool(found) and all(
            (found[0] / name).exists() and (found[0] / name).read_text().strip()
            for name in ("self", "deep")
        )

    edge.wait(there)
    return [int((edge.place(job) / name).read_text()) for name in ("self", "deep")]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# -- killed ----------------------------------------------------------------------------------------


@pytest.mark.crash_points
@pytest.mark.parametrize("point", crash.STAGE)
def test_killed_and_started_again(edge: Edge, data: Path, point: str) -> None:
    (data / "in").write_text("in")
    with serving(data) as web:
        edge.app(
            "all", "cat in made > out", before="echo made > made", after="echo after >> out",
            staging=edge.reach(data, port=web.port),
        )  # fmt: skip
        job = edge.post(
            "all",
            inputs=[{"url": f"{web.url}/in"}],
            outputs=[{"path": "out", "url": f"{web.url}/out"}],
        )
        edge.dies(point)
        fetched = web.calls["GET"]
        with edge.up():
            edge.done(job)
        assert point not in ("stage.fetched", "stage.prepared") or web.calls["GET"] == fetched
    before = 2 if point == "stage.preprocessed" else 1
    assert edge.ran() == [
        *[f"all-preprocess {job}.1"] * before, f"all {job}", f"all-postprocess {job}.1"
    ]  # fmt: skip
    assert (data / "out" / "out").read_text() == "inmade\nafter\n"
    ends = [state for state, _ in edge.states(job) if state in ("done", "failed")]
    assert ends == ["done"]


def test_who_is_tried_again_replaces_what_an_earlier_attempt_has_sent_in_part(
    edge: Edge, data: Path
) -> None:
    script = "mkdir out; echo $PILOTAGE_ATTEMPT > out/a; echo b > out/b"
    edge.app("write", script, staging=edge.reach(data))
    # A folder in the place of the second file: the first one arrives, and no manifest does.
    (data / "to" / "b").mkdir(parents=True)
    job = edge.post("write", outputs=[{"path": "out", "url": f"file://{data}/to"}])
    with edge.up():
        assert [one.state for one in edge.ended(job)] == [State.FAILED]
        assert (data / "to" / "a").read_text() == "1\n"
        (data / "to" / "b").rmdir()
        again(edge, job)
        edge.done(job)
    assert (data / "to" / "a").read_text() == "2\n"
