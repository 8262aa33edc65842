"""`pilotage watch`: rules beside the data, jobs at a hub elsewhere; nothing lost, nothing twice."""

from __future__ import annotations

import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pilotage.job.model import Command, JobSpec, NewJob, State
from pilotage.job.records import Selection
from pilotage.project import tokens
from testbed.ports import free_port
from tests.rigs.node import real_hub
from tests.rigs.node.real_hub import RealHub
from tests.rigs.node.scripted_hub import wait_for
from tests.rigs.project.project import Rig
from tests.suite import programs

_RULES = """
[rule.mark]
files = "in/{{name}}.txt"
run = ["sh", "-c", "echo x >> {marks}/$0; sleep 0.05", "{{name}}"]

[rule.after]
job = "mark"
run = ["sh", "-c", "echo x >> {marks}/after"]
"""


class Watch:
    """A project whose jobs go to a hub."""

    def __init__(self, folder: Path, hub: RealHub, rules: str = _RULES) -> None:
        self.marks = folder / "marks"
        self.marks.mkdir(parents=True)
        self.rig = Rig(folder / "beside", rules.format(marks=self.marks))
        (self.rig.root / "in").mkdir()
        self.project = self.rig.project()
        self.token = folder / "token"
        #: Its own, since several projects may share a hub.
        self.owner = f"lab/{secrets.token_hex(4)}"
        self.token.write_text(hub.token(tokens.TokenScope.USER, self.owner))
        self.hub = hub
        self.url = ""
        self.log = folder / "watch.log"

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [
            sys.executable, "-m", "pilotage", "watch", "--project", str(self.rig.root),
            "--hub", self.url or self.hub.url, "--token-file", str(self.token), *words,
        ]  # fmt: skip
        with self.log.open("ab") as out:
            return subprocess.Popen(
                command,
                env={**os.environ, "PYTHONPATH": str(real_hub.SRC), "PILOTAGE_DEBUG": "1"},
                stdout=out,
                stderr=out,
            )

    @contextmanager
    def up(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        process = self.begin(*words)
        try:
            yield process
        finally:
            programs.end(process)

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        """Start it, and return when it looks."""
        process = self.start(*words)
        programs.until_ready(process, self.project.ready, self.log.read_text)
        return process

    def drop(self, *names: str) -> None:
        for name in names:
            (self.rig.root / "in" / f"{name}.txt").write_text(name)

    def count(self, *states: State, name: str = "mark") -> int:
        return len(self.project.jobs(Selection(name=name, states=states)))

    def wait(self, count: int, state: State = State.DONE, name: str = "mark") -> None:
        wait_for(lambda: self.count(state, name=name) >= count, 60)

    @property
    def marked(self) -> dict[str, str]:
        return {file.name: file.read_text() for file in self.marks.iterdir()}

    def remote(self) -> list[tuple[str, str]]:
        """Tell the jobs of this project that the hub has, by name and state."""
        jobs = self.hub.project.jobs(Selection())
        return [(one.name, str(one.state)) for one in jobs if one.owner == self.owner]


_CORES = "[site]\ncpus = 4\n"


@pytest.fixture(scope="module")
def hub(tmp_path_factory) -> Iterator[RealHub]:
    """One hub for all tests that leave it as it is."""
    with real_hub.running(tmp_path_factory.mktemp("hub") / "hub", local=True, more=_CORES) as one:
        yield one


@pytest.fixture
def watch(tmp_path, hub) -> Iterator[Watch]:
    with _watch(tmp_path, hub) as one:
        yield one


@pytest.fixture
def frail(tmp_path) -> Iterator[Watch]:
    """A project with a hub of its own, which may be killed."""
    with (
        real_hub.running(tmp_path / "hub", local=True, more=_CORES) as hub,
        _watch(tmp_path, hub) as one,
    ):
        yield one


@contextmanager
def _watch(folder: Path, hub: RealHub) -> Iterator[Watch]:
    one = Watch(folder, hub)
    try:
        yield one
    finally:
        one.project.close()
        sys.stderr.write(one.log.read_text() if one.log.exists() else "")


def _names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def test_jobs_run_at_the_hub_and_their_ends_are_events_here(watch):
    names = _names(5)
    watch.drop(*names[:2])
    with watch.up():
        watch.drop(*names[2:])
        watch.wait(5)
        watch.wait(5, name="after")
    assert watch.marked == {"after": "x\n" * 5, **dict.fromkeys(names, "x\n")}
    assert sorted(watch.remote()) == [("after", "done")] * 5 + [("mark", "done")] * 5
    (one, *_) = watch.project.jobs(Selection(name="mark"))
    told = [row[2] for row in watch.project.db.rows("journal_of", job=one.id)]
    assert told == ["queued", "submitted", "done"]
    assert not list((watch.rig.root / ".pilotage").glob("jobs/*"))


def test_files_that_jobs_at_the_hub_declare_know_their_cause_here(watch):
    out = watch.rig.root / "out"
    out.mkdir()
    watch.rig.rules(
        '[rule.copy]\nfiles = "in/{name}.txt"\nrun = ["cp", "{path}", "{base}/out/{name}.csv"]\n'
        'outputs = { copy = "out/{name}.csv" }\n'
        '[rule.next]\nfiles = "out/*.csv"\nrun = ["true"]\n'
        '[rule.told]\njob = "copy"\nrun = ["test", "-e", "{ended.outputs.0}"]\n'
    )
    with watch.up():
        watch.drop("a")
        for name in ("copy", "next", "told"):
            watch.wait(1, name=name)
    (copy,) = watch.project.jobs(Selection(name="copy"))
    (after,) = watch.project.jobs(Selection(name="next"))
    assert after.parent == copy.id


def test_until_idle_ends_when_the_hub_has_done_all_and_tells_of_failures(watch):
    watch.rig.rules('[rule.bad]\nfiles = "in/*.txt"\nrun = ["false"]\n')
    watch.drop("a")
    assert programs.wait(watch.start("--until-idle")) == 1
    (one,) = watch.project.jobs(Selection())
    assert one.state is State.FAILED
    assert "exit" in one.reason


@pytest.mark.parametrize("count", [40, pytest.param(120, marks=pytest.mark.soak)])
def test_nothing_is_lost_and_nothing_twice_when_both_sides_are_killed_again_and_again(frail, count):
    watch, names, dice = frail, _names(count), random.Random(5)
    process = watch.begin()
    for number, name in enumerate(names):
        watch.drop(name)
        time.sleep(0.02)
        if number % 20 == 10:
            process.kill()
            process.wait()
            time.sleep(dice.uniform(0, 0.3))
            process = watch.start()
            time.sleep(dice.uniform(0, 2.0))
        if number and number % 40 == 20:
            watch.hub.kill()
            time.sleep(dice.uniform(0, 0.5))
            watch.hub.start(local=True)
    try:
        watch.wait(count)
        watch.wait(count, name="after")
    finally:
        programs.end(process)
    marked = watch.marked
    assert marked.pop("after") == "x\n" * count
    assert marked == dict.fromkeys(names, "x\n")
    assert len(watch.remote()) == 2 * count


class Cutter:
    """Stands between the two, and cuts when it has seen a word."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        #: What is looked for in what the watch says, and what is done when it has passed.
        self.word = b""
        self.act: Callable[[], None] = lambda: None
        self.cuts = 0
        #: Whether answers of the hub get through.
        self.deaf = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        with suppress(OSError), caller, socket.create_connection(("127.0.0.1", self._port)) as hub:
            back = threading.Thread(target=self._back, args=(hub, caller), daemon=True)
            back.start()
            self.deaf = False
            while data := caller.recv(65536):
                hit = bool(self.word) and self.word in data
                # What follows reaches the hub, but no answer comes back.
                self.deaf = self.deaf or hit
                hub.sendall(data)
                if hit:
                    self.cuts += 1
                    time.sleep(0.3)
                    self.act()
                    break
            for one in (caller, hub):
                one.shutdown(socket.SHUT_RDWR)
            back.join()

    def _back(self, hub: socket.socket, caller: socket.socket) -> None:
        with suppress(OSError):
            while data := hub.recv(65536):
                if not self.deaf:
                    caller.sendall(data)

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def cutter(hub) -> Iterator[Cutter]:
    one = Cutter(hub.port)
    yield one
    one.close()


@pytest.mark.parametrize("word", [b'"op":"submit"', b'"op":"ends"', b'"op":"login"'])
def test_a_cut_after_the_hub_has_heard_and_before_it_is_heard_changes_nothing(watch, cutter, word):
    watch.url = cutter.url

    def once() -> None:
        if cutter.cuts >= 3:
            cutter.word = b""

    cutter.act, cutter.word = once, word
    with watch.up():
        watch.drop(*_names(10))
        watch.wait(10)
        watch.wait(10, name="after")
        assert cutter.cuts == 3
    marked = watch.marked
    assert marked.pop("after") == "x\n" * 10
    assert marked == dict.fromkeys(_names(10), "x\n")


@pytest.mark.parametrize("word", [b'"op":"submit"', b'"op":"ends"'])
def test_a_kill_after_the_hub_has_heard_and_before_it_is_heard_changes_nothing(watch, cutter, word):
    watch.url = cutter.url
    process = watch.begin()

    def kill() -> None:
        cutter.word = b""
        process.kill()

    cutter.act, cutter.word = kill, word
    watch.drop(*_names(10))
    programs.wait(process)
    with watch.up():
        watch.wait(10)
        watch.wait(10, name="after")
    marked = watch.marked
    assert marked.pop("after") == "x\n" * 10
    assert marked == dict.fromkeys(_names(10), "x\n")


def test_jobs_wait_here_while_the_hub_is_away_and_go_when_it_is_back(frail):
    watch, hub = frail, frail.hub
    watch.url = hub.url
    hub.kill()
    with watch.up():
        watch.drop(*_names(3))
        wait_for(lambda: watch.count() == 3)
        assert watch.count(State.DONE) == 0
        hub.start(local=True)
        watch.wait(3)


def test_a_hub_that_has_moved_is_told_again_and_runs_nothing_twice(frail, tmp_path):
    watch, hub, gate = frail, frail.hub, tmp_path / "gate"
    until = f"while [ ! -e {gate} ]; do sleep 0.1; done"
    watch.rig.rules(
        '[rule.mark]\nfiles = "in/*.txt"\n'
        f'run = ["sh", "-c", "echo x >> {watch.marks}/$0; {until}", "{{stem}}"]\n'
    )
    watch.drop(*_names(4))
    with watch.up():
        wait_for(lambda: len(watch.marked) == 4, 60)
    hub.kill()
    settings = hub.root / "pilotage.toml"
    old, hub.port = hub.port, free_port()
    settings.write_text(settings.read_text().replace(f"port = {old}", f"port = {hub.port}"))
    hub.start(local=True)
    with watch.up():
        gate.touch()
        watch.wait(4)
    assert watch.marked == dict.fromkeys(_names(4), "x\n")
    assert len(watch.remote()) == 4


_SLOW = '[rule.slow]\nfiles = "in/*.txt"\nrun = ["sleep", "1000"]\n'


def test_what_a_person_stops_here_ends_at_the_hub_also_after_a_restart(watch):
    watch.rig.rules(_SLOW)
    watch.drop("a", "b")
    with watch.up():
        wait_for(lambda: [one[1] for one in watch.remote()] == ["running"] * 2, 60)
    one, two = (job.id for job in watch.project.jobs(Selection()))
    assert {watch.project.job(job).state for job in (one, two)} == {State.SUBMITTED}
    assert watch.project.cancel([one]) == {one: State.SUBMITTED}
    assert watch.project.hold([two]) == {two: State.SUBMITTED}
    with watch.up():
        wait_for(lambda: watch.project.job(one).state is State.CANCELLED)
        wait_for(lambda: watch.project.job(two).state is State.HELD)
    assert [one[1] for one in watch.remote()] == ["cancelled"] * 2


def test_a_job_that_is_tried_again_here_is_a_new_one_there(watch):
    watch.rig.rules('[rule.bad]\nfiles = "in/*.txt"\nrun = ["false"]\n')
    watch.drop("a")
    with watch.up():
        watch.wait(1, State.FAILED, name="bad")
        (job,) = watch.project.jobs(Selection())
        watch.project.retry([job.id])
        wait_for(lambda: watch.project.job(job.id).attempt == 2)
        watch.wait(1, State.FAILED, name="bad")
    assert watch.remote() == [("bad", "failed")] * 2


def test_limits_and_order_are_kept_from_here(watch):
    log = f"echo $0 >> {watch.marks}/log"
    watch.rig.rules(
        f'[rule.one]\nfiles = "in/*.txt"\n'
        f'run = ["sh", "-c", "{log}; sleep 0.1; {log}", "{{stem}}"]\n'
        'limit = { key = "one", most = 1 }\n'
    )
    watch.drop(*_names(6))
    with watch.up():
        watch.wait(6, name="one")
    lines = watch.marked["log"].split()
    assert lines[::2] == lines[1::2]


def test_a_job_that_the_hub_refuses_is_rejected_here_and_the_others_go_on(watch):
    with watch.up():
        good = [watch.project.submit(NewJob(JobSpec(Command(("true",)), "good"))) for _ in range(4)]
        bad = watch.project.submit(NewJob(JobSpec(Command(("true",)), "bad", priority=2**60)))
        good.append(watch.project.submit(NewJob(JobSpec(Command(("true",)), "good"))))
        watch.wait(5, name="good")
        watch.wait(1, State.REJECTED, name="bad")
    assert "the hub says" in watch.project.job(bad).reason


def test_a_token_that_the_hub_does_not_know_ends_it_with_a_word(watch):
    watch.token.write_text("pil_u_" + "x" * 43)
    assert programs.wait(watch.start()) == 5
    assert "the token is wrong or revoked" in watch.log.read_text()


def test_a_token_does_not_travel_in_the_clear(watch):
    watch.url = "http://hub.example.org:8420"
    assert programs.wait(watch.start()) == 2
    assert "not encrypted" in watch.log.read_text()
