"""`pilotage site send`, `site control` and what is heard, by a real broker, as a person does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal

from pilotage.bus.model import Answer
from pilotage.edge import view
from pilotage.store import connect
from testbed.ports import free_port
from testbed.rabbit import Rabbit
from tests.rigs.broker import edge_agent
from tests.rigs.broker.site_messages import OwnExchange, Site, result, served
from tests.suite.programs import PATIENCE, end, until_ready

JOB = {"v": 1, "kind": "job", "site": "mira", "application": "sim", "parameters": {"events": 10}}
#: As the slides of the original show it, with its comma.
LEGACY = '{"name": "n", "site": "mira", "application": "sim", "wall_time_minutes": 30,\n}'


class Person:
    """Somebody in the folder of a project."""

    def __init__(self, root: Path, lane: OwnExchange, user: str = "alice") -> None:
        self.root, self.lane = root, lane
        root.mkdir(exist_ok=True)
        port = f"[hub]\nport = {free_port()}\n"
        (root / "pilotage.toml").write_text(port + lane.settings(user))

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "pilotage", *words, "--project", str(self.root)]

    def run(self, *words: str, sent: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*words), input=sent, capture_output=True, text=True, timeout=120,
            check=False, cwd=self.root,
        )  # fmt: skip

    def tell(self, *words: str, status: int = 0, sent: str = "") -> Any:
        found = self.run(*words, "--json", sent=sent)
        assert found.returncode == status, found.stderr + found.stdout
        return [json.loads(each) for each in found.stdout.splitlines()]

    def heard(self) -> dict[str, str]:
        """Read which sites were heard of, and how they are."""
        db = connect(self.root / ".pilotage/store.db", readonly=True)
        try:
            return {one.name: one.state for one in view.look(db, time.time()).edges}
        finally:
            db.close()

    def file(self, **more: object) -> str:
        file = self.root / "job.json"
        file.write_text(json.dumps({**JOB, **more}))
        return str(file)


@pytest.fixture
def lane(rabbit: Rabbit) -> OwnExchange:
    return OwnExchange(rabbit)


@pytest.fixture
def person(tmp_path: Path, lane: OwnExchange) -> Person:
    return Person(tmp_path / "project", lane)


@pytest.fixture
def site(lane: OwnExchange) -> Iterator[Site]:
    site = Site(lane)
    with served(site):
        yield site


def test_a_job_is_sent_and_its_story_is_told_until_the_end(person: Person, site: Site):
    found = person.run("site", "send", "mira", person.file(), "--wait")
    assert found.returncode == 0, found.stderr
    lines = [line.split() for line in found.stdout.splitlines()]
    assert [line[1] for line in lines] == ["queued", "running", "done"]
    assert lines[1][2:] == ["run"]
    [(user, job)] = site.jobs
    assert (user, job.reply, job.parameters) == ("alice", "status.alice", {"events": 10})
    # The same definition again is the same job, and so is the whole message.
    again = person.tell("site", "send", "mira", "job.json", "--wait")
    assert [one["state"] for one in again] == ["queued", "running", "done"]
    assert again[1]["scheduler_id"] == "4711"
    assert again[0]["key"] == job.key
    assert site.jobs[1] == site.jobs[0]
    # Another key makes it another one.
    [told] = person.tell("site", "send", "mira", "job.json", "--key", "run-7")
    assert told["key"] == "run-7"


def test_a_job_that_does_not_end_well_is_an_error(person: Person, site: Site):
    words = "the application ended with 3"
    site.course = [
        {"state": "running", "seq": 4},
        # What is older, the same again, or of other jobs is not told.
        {"state": "queued", "seq": 2},
        {"state": "running", "seq": 4},
        {"state": "done", "seq": 9, "key": "of-another"},
        {"state": "failed", "seq": 5, "text": words, "code": "exit"},
    ]
    found = person.run("site", "send", "mira", person.file(), "--wait")
    assert found.returncode == 1
    assert [line.split()[1] for line in found.stdout.splitlines()] == ["running", "failed"]
    assert words in found.stdout
    site.course = [{"state": "rejected", "job": 0, "text": "there is no application sim"}]
    [told] = person.tell("site", "send", "mira", "job.json", "--wait", status=1)
    assert told["reason"]["text"] == "there is no application sim"


def test_a_definition_of_the_original_is_taken_from_standard_input(person: Person, site: Site):
    found = person.run("site", "send", "--wait", "mira", "-", sent=LEGACY)
    assert found.returncode == 0, found.stderr
    [(_, job)] = site.jobs
    assert (job.name, job.wall_time, job.speech) == ("n", 1800, "pilotage")


def test_who_waits_no_longer_leaves_the_job_alone(person: Person, site: Site):
    site.course = [{"state": "running"}]
    found = person.run("site", "send", "mira", person.file(), "--wait", "--timeout", "2s")
    assert found.returncode == 124
    assert "it continues" in found.stderr
    words = person.words("site", "send", "mira", "job.json", "--wait")
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=person.root, text=True) as process:
        assert process.stdout
        assert "running" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130


def test_that_nobody_listens_is_said_with_what_to_do(
    person: Person, tmp_path: Path, lane: OwnExchange
):
    found = person.run("site", "send", "mira", person.file())
    assert found.returncode == 6
    assert "no consumer for 'job.mira'" in found.stderr
    assert "pilotage site ls" in found.stderr
    found = person.run("site", "control", "mira", "drain")
    assert found.returncode == 6
    assert "no consumer for 'control.mira'" in found.stderr
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "pilotage.toml").touch()
    words = [sys.executable, "-m", "pilotage", "site", "send", "mira", person.file()]
    words += ["--project", str(bare)]
    alone = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert alone.returncode == 3
    assert "`bus.url`" in alone.stderr
    # A broker that is away is another matter.
    text = (person.root / "pilotage.toml").read_text()
    text = text.replace(lane.url, f"amqps://127.0.0.1:{free_port()}/")
    (person.root / "pilotage.toml").write_text(text.replace("patience = 10.0", "patience = 1.0"))
    found = person.run("site", "send", "mira", "job.json")
    assert found.returncode == 6
    assert "`bus` of pilotage.toml" in found.stderr


def test_jobs_and_the_site_are_controlled(person: Person, site: Site):
    found = person.run("site", "control", "mira", "drain")
    assert (found.returncode, found.stdout) == (0, "mira takes no more jobs\n")
    results = (
        result(7, key="a", state="cancelled", text="was running"),
        result(0, key="b", ok=False, text="there is no such job of yours"),
    )
    site.answer = Answer(site="mira", time=1.0, verb="cancel", results=results)
    words = ["--job", "7", "--key", "b", "--reason", "no longer needed"]
    found = person.run("site", "control", "mira", "cancel", *words)
    assert found.returncode == 1
    assert found.stdout.splitlines()[1].split() == ["7", "a", "cancelled", "was", "running"]
    assert "there is no such job of yours" in found.stdout
    user, asked = site.controls[-1]
    assert (user, asked.jobs, asked.keys) == ("alice", (7,), ("b",))
    assert asked.reason == "no longer needed"
    [told] = person.tell("site", "control", "mira", "cancel", *words, status=1)
    assert [one["ok"] for one in told["results"]] == [True, False]
    site.answer = Answer(site="mira", time=1.0, verb="query", counts={"running": 2, "queued": 1})
    assert "2 running, 1 queued" in person.run("site", "control", "mira", "query").stdout
    site.answer = Answer(site="mira", time=1.0, ok=False, text="only administrators may")
    found = person.run("site", "control", "mira", "resume")
    assert (found.returncode, found.stdout) == (1, "refused: only administrators may\n")
    found = person.run("site", "control", "mira", "cancel")
    assert found.returncode == 2
    assert "--job NUMBER" in found.stderr
    site.answer = None
    found = person.run("site", "control", "mira", "drain", "--within", "1s")
    assert found.returncode == 124
    assert "when the agent is back" in found.stderr


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
def test_what_a_hub_has_heard_is_listed_and_shown(person: Person, lane: OwnExchange):
    assert person.tell("site", "ls")[0]["sites"] == []
    assert "no hub listens to the broker" in person.run("site", "ls").stderr
    site = Site(lane)
    with served(site) as portal, _up(person):
        until(lambda: "no site has reported by the broker yet" in person.run("site", "ls").stderr)
        _beat(portal, site, certificate_days=3.5, counts={"running": 2}, epoch=4)
        until(person.heard)
        listed = person.run("site", "ls").stdout.splitlines()[1].split()
        assert listed[:6] == ["mira", "by", "messages", "well", "2", "0"]
        shown = person.run("site", "show", "mira").stdout
        assert "Pilotage 1.0, epoch 4" in shown
        assert "its certificate expires in 3 d 1" in shown
        assert ["user", "site"] in [line.split() for line in shown.splitlines()]
        assert "there is no site `theta`" in person.run("site", "show", "theta").stderr
        assert person.run("site", "drain", "mira", "--reason", "new disks").returncode == 0
        assert "new disks" in person.run("site", "ls").stdout
        assert person.run("site", "resume", "mira").returncode == 0
        assert "new disks" not in person.run("site", "ls").stdout
    # Whatever is said now is of before.
    assert person.tell("site", "ls")[0]["sites"][0]["state"] == "unknown"
    found = person.run("site", "ls")
    assert "was well when last seen" in found.stdout
    assert "no hub listens to the broker: start `pilotage up`" in found.stderr
    assert person.tell("site", "forget", "mira") == [
        {"schema": 1, "site": "mira", "forgotten": True}
    ]
    assert person.tell("site", "ls")[0]["sites"] == []
    assert person.run("site", "forget", "mira").returncode == 4


@pytest.mark.slow
def test_all_of_it_with_a_real_agent(tmp_path: Path, rabbit: Rabbit):
    with edge_agent.at_local(tmp_path / "site", rabbit) as edge, edge.up():
        lane = OwnExchange(rabbit)
        lane.exchange = edge.exchange
        alice, admin = (Person(tmp_path / one, lane, one) for one in ("alice", "hub"))
        with _up(admin):
            until(admin.heard)
            [heard] = admin.tell("site", "ls")[0]["sites"]
            assert (heard["name"], heard["agent"]["speaker"]) == (edge.site, edge_agent.AGENT)
            checks = admin.tell("site", "check", edge.site)[0]["checks"]
            verdicts = {one["name"]: one["verdict"] for one in checks}
            assert "bad" not in verdicts.values(), checks
            assert verdicts["answers"] == "ok"
            file = alice.file(site=edge.site, application="count", parameters={})
            # The broker knows where jobs go once the agent has asked for some.
            until(lambda: alice.run("site", "send", edge.site, file).returncode == 0)
            told = alice.tell("site", "send", edge.site, file, "--wait")
            assert told[-1]["state"] == "done", told
            assert [one["seq"] for one in told] == sorted({one["seq"] for one in told})
            # It was one job all the time, and whoever asks later hears its end again.
            again = alice.tell("site", "send", edge.site, file, "--wait")
            assert (again[-1]["job"], again[-1]["state"]) == (told[-1]["job"], "done")
            assert len(edge.jobs()) == 1
            bad = alice.file(site=edge.site, application="nothing", parameters={})
            [refused] = alice.tell("site", "send", edge.site, bad, "--wait", status=1)
            assert (refused["state"], refused["job"]) == ("rejected", 0)
            assert "nothing" in refused["reason"]["text"]
            number = str(told[-1]["job"])
            [found] = alice.tell("site", "control", edge.site, "query", "--job", number)
            assert [one["state"] for one in found["results"]] == ["done"]
            found = alice.run("site", "control", edge.site, "drain")
            assert (found.returncode, found.stdout[:7]) == (1, "refused")
            assert "takes no more jobs" in admin.run("site", "control", edge.site, "drain").stdout
            until(lambda: admin.heard() == {edge.site: "draining"})
            assert "takes jobs" in admin.run("site", "control", edge.site, "resume").stdout


def _beat(portal: BlockingPortal, site: Site, **more: object) -> None:
    portal.start_task_soon(lambda: site.beat(**more)).result(PATIENCE)


class _up:  # noqa: N801 - reads as a verb
    """`pilotage up`, while the block runs."""

    def __init__(self, person: Person) -> None:
        self._person = person

    def __enter__(self) -> None:
        self._said = (self._person.root / ".said").open("w+")
        self._process = subprocess.Popen(
            self._person.words("up"), stdin=subprocess.DEVNULL, stdout=self._said,
            stderr=subprocess.STDOUT, env=os.environ,
        )  # fmt: skip
        file = self._person.root / ".pilotage/hub.json"
        until_ready(self._process, file.exists, (self._person.root / ".said").read_text)

    def __exit__(self, *_: object) -> None:
        end(self._process)
        self._said.close()
