"""Pilots that do not see the project's folder: what jobs declare is brought, and comes home."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pilotage.base import crash
from pilotage.job.model import Binding, Call, Command, JobSpec, NewJob, Python, Script, State
from pilotage.job.records import Selection
from pilotage.match.explain import explain
from pilotage.project import tokens as auth
from pilotage.status.explain import JobExplainer
from tests.fleet import QUICK, SRC, RealHub, blind, enrolled, running
from tests.scripted_hub import wait_for

pytestmark = pytest.mark.needs("bwrap")
_SUM = "cat main.txt cal/*.txt > out/sum.txt"
_RULE = "sort $0 > $1; echo {rel} {base} {dir} $PILOTAGE_PATH"
_PYTHON = "from pathlib import Path\nPath(target).write_text(Path(source).read_text()[::-1])\n"
_CALL = "def f(name):\n    open('made', 'w').write(open(name).read())\n    return 7\n"
_RULES = """
[rule.sum]
files = "in/*.txt"
run = ["sh", "-c", "wc -c < $0 > $1", "{path}", "{base}/out/{stem}"]
outputs = { size = "out/{stem}" }

[rule.tick]
every = "200ms"
run = ["sh", "-c", "date > $0", "{base}/ticks/{job}"]
outputs = { tick = "ticks/{job}" }

[rule.next]
files = "out/*"
run = ["cp", "{path}", "{base}/last/{name}"]
outputs = { last = "last/{name}" }
"""
_NEXT = """
[rule.next]
files = "out/*"
run = ["true"]
optional_outputs = { x = "x" }
"""
#: Bytes after which a connection is cut.
_CUT_AFTER = 12_000_000


class Narrow:
    """A way to the hub on which each connection is cut after so many bytes."""

    def __init__(self, port: int, most: int, pause: float) -> None:
        self._port = port
        self._most = most
        self._pause = pause
        self.cuts = 0
        self.moved = 0
        self._links: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        # Who waits in `accept` does not hear that its socket is closed.
        self._server.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for one in (self._server, *self._links):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in (self._server, *self._links):
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._links += [near, far]
                count = [0]
                for one, other in ((near, far), (far, near)):
                    work = threading.Thread(target=self._move, args=(one, other, count))
                    self._threads.append(work)
                    work.start()

    def _move(self, one: socket.socket, other: socket.socket, count: list[int]) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                count[0] += len(data)
                self.moved += len(data)
                other.sendall(data)
                time.sleep(self._pause)
                if count[0] > self._most:
                    self.cuts += 1
                    break
        for each in (one, other):
            with suppress(OSError):
                # Whoever sends still must hear of it, too.
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                each.shutdown(socket.SHUT_RD)
            each.close()


@contextmanager
def narrow(port: int, most: int, pause: float = 0.0) -> Iterator[Narrow]:
    """Have such a way while the block runs; it is slower with a pause."""
    way = Narrow(port, most, pause)
    try:
        yield way
    finally:
        way.close()


@pytest.fixture(scope="module")
def hub(tmp_path_factory) -> Iterator[RealHub]:
    with running(tmp_path_factory.mktemp("blind") / "project") as one:
        yield one


def _submit(hub: RealHub, recipe: Any, **facts: Any) -> int:
    binding = facts.pop("binding", Binding())
    return hub.project.submit(NewJob(JobSpec(recipe, "job", **facts), binding))


def _sh(text: str) -> Command:
    return Command(("sh", "-c", text))


def _done(hub: RealHub, *jobs: int) -> None:
    hub.wait(*jobs)
    for job in jobs:
        assert hub.state(job) is State.DONE, hub.project.job(job).reason


def _words(hub: RealHub, job: int) -> str:
    project = hub.project
    witness = JobExplainer(project.db, project.settings, now=time.time(), running=True)
    found = explain(witness.facts(job))
    return f"{found.headline}; {found.reasons}; {found.suggestion}"


def test_what_a_job_declares_is_brought_and_comes_home(hub, tmp_path):
    (hub.root / "cal").mkdir()
    (hub.root / "cal" / "a.txt").write_text("a")
    (hub.root / "cal" / "b.txt").write_text("b")
    (hub.root / "main.txt").write_text("m")
    program = hub.root / "tool.sh"
    program.write_text("#!/bin/sh\necho tool $1\n")
    program.chmod(0o755)
    with blind(hub, tmp_path / "p"):
        job = _submit(
            hub, _sh(f"{_SUM}; cp -r cal out/copy; chmod +x out/sum.txt; echo said; pwd"),
            inputs=("main.txt", "cal/*.txt"), cwd=str(hub.root),
            outputs={"sum": "out/sum.txt", "copy": "out/copy"}, optional_outputs={"no": "out/no"},
        )  # fmt: skip
        mine = _submit(hub, Command((str(program), "x")))
        _done(hub, job, mine)
    assert (hub.root / "out" / "sum.txt").read_text() == "mab"
    assert os.access(hub.root / "out" / "sum.txt", os.X_OK)
    assert (hub.root / "out" / "copy" / "b.txt").read_text() == "b"
    said, where = hub.output(job).split()
    assert said == "said"
    assert f"/data/{job}.1" in where
    assert hub.output(mine) == "tool x\n"


def test_keywords_and_recipes_mean_what_is_there(hub, tmp_path):
    trigger = hub.root / "in" / "x.csv"
    trigger.parent.mkdir()
    trigger.write_text("2\n1\n")
    script = hub.root / "recipe.py"
    script.write_text(_PYTHON)
    bound = Binding(path=str(trigger))
    back = {"source": "{path}", "target": "{base}/back/{stem}"}
    with blind(hub, tmp_path / "p"):
        rule = _submit(
            hub, Command(("sh", "-c", _RULE, "{path}", "{base}/done/{stem}")),
            binding=bound, outputs={"sorted": "done/{stem}"},
        )  # fmt: skip
        python = _submit(
            hub, Python(file=str(script)), binding=bound, params=back,
            outputs={"back": "{base}/back/{stem}"},
        )  # fmt: skip
        shell = _submit(hub, Script(source="cat $PILOTAGE_PATH"), binding=bound)
        call = _submit(
            hub, Call("f", source=_CALL), params={"name": "in/x.csv"}, inputs=("in/x.csv",),
            outputs={"made": "made"},
        )  # fmt: skip
        _done(hub, rule, python, shell, call)
    assert (hub.root / "done" / "x").read_text() == "1\n2\n"
    rel, base, folder, path = hub.output(rule).split()
    assert (rel, folder, path) == ("in/x.csv", f"{base}/in", f"{base}/in/x.csv")
    assert base != str(hub.root)
    assert (hub.root / "back" / "x").read_text() == "\n1\n2"
    assert hub.output(shell) == "2\n1\n"
    assert (hub.root / "made").read_text() == "2\n1\n"
    found = json.loads(hub.project.db.value("result_get", job=call))
    assert found["returns"] == [{"ok": 7}]


def test_a_rule_and_a_timer_run_where_the_project_is_not_seen(tmp_path):
    hub = RealHub(tmp_path / "project")
    rules = hub.root / "rules"
    rules.mkdir()
    (hub.root / "in").mkdir()
    (rules / "a.toml").write_text(_RULES)
    try:
        hub.start()
        with blind(hub, tmp_path / "p"):
            (hub.root / "in" / "x.txt").write_text("12345")
            wait_for((hub.root / "last" / "x").exists)
            wait_for(lambda: len(list((hub.root / "ticks").glob("*"))) >= 2)
        assert (hub.root / "last" / "x").read_text().strip() == "5"
        # What comes home knows its cause, and fires once.
        jobs = hub.project.jobs(Selection(name="next"))
        assert [(one.parent is not None) for one in jobs] == [True]
    finally:
        hub.kill()
        hub.project.close()


def test_a_submission_and_a_request_declare_their_data(hub, tmp_path):
    (hub.root / "sub").mkdir()
    (hub.root / "sub" / "a").write_text("from a shell")
    command = [sys.executable, "-m", "pilotage", "submit", "--project", str(hub.root)]
    command += ["--input", "a", "--output", "b", "sh", "-c", "cat a > b"]
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    with blind(hub, tmp_path / "p"):
        subprocess.run(command, cwd=hub.root / "sub", env=env, check=True)
        recipe = {"kind": "command", "argv": ["cp", "{base}/sub/a", "{base}/sub/c"]}
        spec = {"name": "asked", "recipe": recipe, "inputs": ["sub/a"], "outputs": {"c": "sub/c"}}
        answer = httpx2.post(
            f"{hub.url}/api/v1/jobs", json={"jobs": [{"spec": spec}]},
            headers={"Authorization": f"Bearer {hub.token(auth.TokenScope.USER)}"},
        )  # fmt: skip
        (asked,) = answer.json()["ids"]
        _done(hub, asked - 1, asked)
    assert (hub.root / "sub" / "b").read_text() == "from a shell"
    assert (hub.root / "sub" / "c").read_text() == "from a shell"


def test_a_sandbox_shows_what_was_brought_and_nothing_else(tmp_path):
    pilots = QUICK.replace('"none"', '"bubblewrap"')
    with (
        running(tmp_path / "project", pilots=pilots) as hub,
        enrolled(hub, tmp_path / "p") as one,
    ):
        (hub.root / "a").write_text("a")
        (hub.root / "b").write_text("b")
        job = _submit(
            hub, _sh(f"cat a > out/a; ls {hub.root} {one.work}/*/cache; ls -A; true"),
            cwd=str(hub.root), inputs=("a",), outputs={"a": "out/a"},
        )  # fmt: skip
        twice = _submit(hub, _sh("echo x >> a; cat a"), cwd=str(hub.root), inputs=("a",),
                        outputs={"a": "a"})  # fmt: skip
        _done(hub, job, twice)
        assert hub.output(job).split() == ["a", "out"]
        assert (hub.root / "out" / "a").read_text() == "a"
        # What it may write to is its own: nobody else reads it.
        assert (hub.root / "a").read_text() == "ax\n"
        last = _submit(hub, _sh("cat b"), cwd=str(hub.root), inputs=("b",))
        stays = _submit(hub, _sh("ls"), cwd=str(hub.root), needs_folder=True)
        _done(hub, last)
        assert hub.state(stays) is State.QUEUED


def test_what_uses_the_folder_without_saying_so_waits_and_says_why(hub, tmp_path):
    with blind(hub, tmp_path / "p"):
        plain = _submit(hub, _sh("echo hi"))
        job = _submit(hub, _sh("ls"), cwd=str(hub.root), needs_folder=True)
        _done(hub, plain)
        assert hub.state(job) is State.QUEUED
        words = _words(hub, job)
        assert "it uses files of the project's folder that it does not declare" in words
        assert "declare all that it reads and writes, as inputs and outputs" in words
        hub.project.cancel([job])


def _refused(hub: RealHub, jobs: list[int]) -> list[int]:
    return [job for job in jobs if "cannot run it" in hub.project.job(job).reason]


def test_a_place_that_cannot_run_a_job_gives_it_back_and_is_not_asked_again(hub, tmp_path):
    with blind(hub, tmp_path / "p"):
        jobs = [_submit(hub, _sh("ls"), cwd=f"/nowhere/{number % 2}") for number in range(6)]
        wait_for(lambda: _refused(hub, jobs[::2]) and _refused(hub, jobs[1::2]))
        plain = _submit(hub, _sh("echo hi"))
        _done(hub, plain)
        # A job that was offered before the first refusal is refused on its own.
        wait_for(lambda: {hub.state(job) for job in jobs} == {State.QUEUED})
        assert sum(len(hub.project.attempts(job)) for job in jobs) <= len(jobs)
        assert "No such file" in _words(hub, _refused(hub, jobs)[0])
        beyond = _submit(hub, _sh("true"), outputs={"x": str(tmp_path / "x")})
        wait_for(lambda: "is not below" in hub.project.job(beyond).reason)
        assert hub.state(beyond) is State.QUEUED
        hub.project.cancel([*jobs, beyond])


def test_a_pilot_that_sees_the_project_copies_nothing(hub, tmp_path):
    (hub.root / "seen.txt").write_text("x")
    with enrolled(hub, tmp_path / "p"):
        job = _submit(
            hub, _sh("pwd; cat seen.txt > seen.out"), cwd=str(hub.root), inputs=("seen.txt",),
            outputs={"out": "seen.out"},
        )  # fmt: skip
        use = _submit(hub, _sh("pwd"), cwd=str(hub.root), needs_folder=True)
        _done(hub, job, use)
    assert hub.output(job).strip() == hub.output(use).strip() == str(hub.root)


def test_outputs_that_are_missing_or_lead_out_fail_the_job(hub, tmp_path):
    with blind(hub, tmp_path / "p"):
        missing = _submit(hub, _sh("true"), outputs={"out": "never"})
        fifo = _submit(hub, _sh("mkfifo fifo"), cwd="{base}", outputs={"out": "fifo"})
        bad = _submit(hub, _sh("echo x > kept; exit 3"), cwd="{base}", outputs={"out": "kept"})
        leak = _submit(hub, _sh("ln -s /etc/passwd {base}/leak"), outputs={"out": "leak"})
        hub.wait(missing, fifo, bad, leak)
    reasons = {job: hub.project.job(job).reason for job in (missing, fifo, bad, leak)}
    assert "declared output is missing: never" in reasons[missing]
    assert "leads out of its folder" in reasons[leak]
    assert "no file and no folder" in reasons[fifo]
    assert "exited with code 3" in reasons[bad]
    assert not any((hub.root / name).exists() for name in ("leak", "kept", "fifo", "never"))


def test_an_input_that_is_gone_or_changed_is_the_jobs_own_affair(hub, tmp_path):
    trigger = hub.root / "changing"
    trigger.write_text("1")
    bound = Binding(path=str(trigger), version="1-1-1")
    with blind(hub, tmp_path / "p"):
        gone = _submit(hub, _sh("true"), inputs=("not/there",))
        changed = _submit(hub, _sh("true"), binding=bound, outputs={"x": "x"})
        hub.wait(gone, changed)
    assert hub.state(gone) is State.FAILED
    assert "not/there" in hub.project.job(gone).reason
    assert hub.state(changed) is State.CANCELLED
    assert "has changed since the rule matched it" in hub.project.job(changed).reason


def test_jobs_of_others_name_nothing_that_is_hidden_or_beyond_the_project(hub, tmp_path):
    with blind(hub, tmp_path / "p"):
        jobs = [
            hub.project.submit(NewJob(JobSpec(_sh("true"), "spy", **facts), owner="lab/eve"))
            for facts in (
                {"inputs": (".pilotage/marker",)}, {"inputs": ("/etc/passwd",)},
                {"outputs": {"x": ".pilotage/x"}},
            )
        ]  # fmt: skip
        hub.wait(*jobs)
    assert {hub.state(job) for job in jobs} == {State.FAILED}
    for job in jobs:
        assert "may not name" in hub.project.job(job).reason


def test_a_cancel_ends_a_job_while_its_data_moves(hub, tmp_path):
    large = hub.root / "large"
    with large.open("wb") as file:
        file.truncate(600 << 20)
    with blind(hub, tmp_path / "p") as one:
        job = _submit(hub, _sh("true"), inputs=("large",))
        wait_for(lambda: list(one.work.glob("pilot-cache-*/*/*.part")))
        hub.project.cancel([job])
        hub.wait(job)
        assert hub.state(job) is State.CANCELLED
        plain = _submit(hub, _sh("true"), outputs={}, inputs=("pilotage.toml",))
        _done(hub, plain)
    large.unlink()


def test_many_jobs_bring_a_shared_input_once_and_the_cache_keeps_to_its_limit(hub, tmp_path):
    shared = hub.root / "shared"
    shared.write_bytes(os.urandom(20_000_000))
    digest = hashlib.sha256(shared.read_bytes()).hexdigest()
    with blind(hub, tmp_path / "p", "--cache", "25M") as one:
        recipe = Command(("stat", "-c", "%s %i", "{base}/shared"))
        jobs = [_submit(hub, recipe, inputs=("shared",)) for _ in range(200)]
        # The last is claimed last.
        hub.wait(jobs[-1], seconds=300)
        _done(hub, *jobs)
        (kept,) = one.work.glob(f"pilot-cache-*/*/{digest}")
        assert {hub.output(job) for job in jobs} == {f"20000000 {kept.stat().st_ino}\n"}
        for number in range(3):
            (hub.root / f"more{number}").write_bytes(os.urandom(10_000_000))
            _done(hub, _submit(hub, _sh("true"), inputs=(f"more{number}",)))
        files = [file for file in one.work.glob("pilot-cache-*/*/*") if not file.suffix]
        assert sum(file.stat().st_size for file in files) <= 25 << 20
        assert len(files) == 2
        assert not kept.exists()


def test_pilots_with_one_folder_bring_a_shared_input_once_though_one_is_killed(hub, tmp_path):
    common = hub.root / "common"
    common.write_bytes(os.urandom(6_000_000))
    words = ("--cache-folder", str(tmp_path / "cache"), "--cpus", "2")
    recipe = _sh("sleep 0.1; stat -c '%s %i' {base}/common")
    lost = _submit(hub, recipe, inputs=("common",))
    with narrow(hub.port, 1 << 40, pause=0.01) as way:
        with blind(hub, tmp_path / "a", *words, url=way.url) as one:
            wait_for(lambda: any(part.stat().st_size for part in _parts(tmp_path)))
            one.process.kill()
        before = way.moved
        assert before < 6_000_000
        with (
            blind(hub, tmp_path / "b", *words, url=way.url),
            blind(hub, tmp_path / "c", *words, url=way.url),
        ):
            wait_for(lambda: all("enrolled" in (tmp_path / x / "log").read_text() for x in "bc"))
            jobs = [_submit(hub, recipe, inputs=("common",)) for _ in range(100)]
            _done(hub, *jobs)
            pilots = {hub.project.attempts(job)[-1].starter for job in jobs}
        assert 6_000_000 < way.moved - before < 11_000_000
    (kept,) = (file for file in (tmp_path / "cache").glob("*/*/*") if not file.suffix)
    assert {hub.output(job) for job in jobs} == {f"6000000 {kept.stat().st_ino}\n"}
    assert len(pilots) == 2
    hub.project.cancel([lost])


def _parts(base: Path) -> list[Path]:
    return list((base / "cache").glob("*/*/*.part"))


def test_a_cut_in_the_middle_costs_only_what_had_not_arrived(hub, tmp_path):
    large = hub.root / "large"
    large.write_bytes(os.urandom(30_000_000))
    with narrow(hub.port, _CUT_AFTER) as way, blind(hub, tmp_path / "p", url=way.url):
        job = _submit(
            hub, _sh("cp {base}/large {base}/again"), inputs=("large",), outputs={"again": "again"}
        )
        hub.wait(job, seconds=120)
        assert hub.state(job) is State.DONE, hub.project.job(job).reason
    assert (hub.root / "again").read_bytes() == large.read_bytes()
    assert way.cuts >= 4
    # Some of it is on its way when a connection is cut; all of it would be several times as much.
    assert way.moved < 2 * 30_000_000 + (way.cuts + 2) * _CUT_AFTER // 2


#: A node and a hub die at every step on the way of data.
_NODE = ("node.fetched", "node.placed", "node.ended", "node.home")


@pytest.mark.crash_points
@pytest.mark.parametrize("point", [*crash.PILOT, *_NODE])
def test_whoever_is_killed_on_the_way_nothing_is_lost_and_nothing_is_done_twice(point, tmp_path):
    quick = QUICK.replace("20s", "3s")
    hub = RealHub(tmp_path / "project", pilots=quick)
    (hub.root / "in.txt").write_text("x" * 100_000)
    (hub.root / "rules").mkdir()
    (hub.root / "rules" / "a.toml").write_text(_NEXT)
    fatal = {"PILOTAGE_CRASH_AT": point}
    try:
        hub.start(env={} if point in _NODE else fatal)
        jobs = [
            _submit(hub, _sh(f"cat {{base}}/in.txt > {{base}}/out/{number}"), inputs=("in.txt",),
                    outputs={"out": f"out/{number}"})
            for number in range(3)
        ]  # fmt: skip
        first = blind(hub, tmp_path / "one", env=fatal if point in _NODE else {})
        with first as one:
            if point in _NODE:
                one.process.wait(60)
                with blind(hub, tmp_path / "two"):
                    _finish(hub, jobs)
            else:
                assert hub.process is not None
                hub.process.wait(60)
                hub.start()
                _finish(hub, jobs)
    finally:
        hub.kill()
        hub.project.close()
    for number, job in enumerate(jobs):
        assert (hub.root / "out" / str(number)).read_text() == "x" * 100_000, job
    assert not list((hub.root / "out").glob(".*"))


def _finish(hub: RealHub, jobs: list[int]) -> None:
    """Wait until all is done, and each has fired its rule once."""
    hub.wait(*jobs, seconds=90)
    assert {hub.state(job) for job in jobs} == {State.DONE}
    wait_for(lambda: len(hub.project.jobs(Selection(name="next"))) >= len(jobs))
    assert len(hub.project.jobs(Selection(name="next"))) == len(jobs)
