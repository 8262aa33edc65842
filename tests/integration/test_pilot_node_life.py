"""A pilot with a hub that does what the test says: from enrolment to good-bye."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pilotage.node import pilot as node
from testbed import processes
from tests.rigs.node.scripted_hub import SECRET, Hub, pilot, wait_for

PYTHON = sys.executable


@pytest.fixture
def hub():
    one = Hub()
    yield one
    one.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[Hub]:
    """One hub with one pilot, for tests that leave both as they are; each has keys of its own."""
    one = Hub()
    with pilot(one.url, tmp_path_factory.mktemp("shared")):
        _ready(one)
        yield one
    one.close()


def _ready(hub: Hub) -> None:
    wait_for(lambda: hub.checks is not None)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_job_runs_and_its_end_its_words_and_its_usage_are_told(hub, tmp_path):
    with pilot(hub.url, tmp_path) as one:
        _ready(hub)
        code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
        hub.grant("1.1", PYTHON, "-c", code)
        wait_for(lambda: "1.1" in hub.ends)
        end = hub.ends["1.1"]
        assert (end["reason"], end["exit"], end["usage"]["wall"] > 0) == ("exited", 3, True)
        assert hub.logs["1.1", "stdout"] == b"out\n"
        assert hub.logs["1.1", "stderr"] == b"err\n"
        wait_for(lambda: not list((one.folder / "jobs").iterdir()))
        one.terminate()
        assert one.status() == 0
        assert hub.left == "it was told to end"
        assert list(one.work.iterdir()) == []


def test_the_secret_is_nowhere_and_the_file_is_gone(hub, tmp_path):
    with pilot(hub.url, tmp_path, env={"PILOTAGE_SECRET": SECRET, "MY_TOKEN": "t"}) as one:
        _ready(hub)
        assert not (tmp_path / "secret").exists()
        hub.grant("1.1", "env")
        look = f"cat /proc/{one.process.pid}/environ; cat /proc/{one.process.pid}/mem"
        hub.grant("2.1", "sh", "-c", look)
        wait_for(lambda: len(hub.ends) == 2)
        env = hub.logs["1.1", "stdout"].decode()
        assert "PATH=" in env
        assert SECRET not in env
        assert "MY_TOKEN" not in env
        if os.getuid():
            assert hub.logs["2.1", "stdout"] == b""
            assert b"Permission denied" in hub.logs["2.1", "stderr"]


def test_missing_outputs_are_told(shared):
    outputs = {"made": "made", "not": "nowhere"}
    shared.grant("11.1", "touch", "made", outputs=outputs)
    wait_for(lambda: "11.1" in shared.ends)
    assert shared.ends["11.1"]["missing"] == ["nowhere"]


def test_what_a_function_returned_comes_as_it_was_written(shared):
    files = {
        "recipe.py": "def f(x):\n    return {'x': x, 'ü': [1, None]}\n",
        "p.json": '{"x":5}',
    }
    work = shared.facts["work"]
    folder = f"{work}/jobs/12.1"
    argv = [f"{work}/call.py", "--file", f"{folder}/recipe.py", "--function", "f"]
    argv += ["--params", f"{folder}/p.json", "--result", f"{folder}/result.json"]
    shared.grant("12.1", shared.facts["python"], *argv, files=files, result=True)
    wait_for(lambda: "12.1" in shared.ends)
    assert shared.ends["12.1"]["result"] == {"x": 5, "ü": [1, None]}


def test_a_failed_check_is_told_and_the_slot_is_free_at_once(tmp_path):
    check = {"name": "space", "kind": "hub", "source": "#!/bin/sh\necho no space; exit 1\n"}
    slow = {"name": "slow", "kind": "group", "source": "#!/bin/sh\nsleep 60\n", "timeout": 0.3}
    fine = {"name": "fine", "kind": "hub", "source": f"#!{PYTHON}\nprint('ok')\n"}
    hub = Hub(checks=[{"timeout": 10.0, **one} for one in (check, slow, fine)])
    begun = time.monotonic()
    with pilot(hub.url, tmp_path) as one:
        assert one.status() == 10
    # Long before the check would have ended by itself.
    assert time.monotonic() - begun < 45
    assert hub.checks is not None
    found = {one["name"]: one for one in hub.checks}
    assert (found["space"]["ok"], found["space"]["words"]) == (False, "no space")
    assert "stopped after its 0.3 s" in found["slow"]["words"]
    assert found["fine"]["ok"]
    assert "no space" in (hub.left or "")
    assert not hub.ops("sync")
    hub.close()


def test_checks_of_the_site_are_programs_in_a_folder(hub, tmp_path):
    folder = tmp_path / "checks"
    folder.mkdir()
    (folder / "10-good").write_text("#!/bin/sh\nexit 0\n")
    (folder / "20-bad").write_text("#!/bin/sh\necho $HOME; exit 4\n")
    (folder / "readme").write_text("not a program")
    for name in ("10-good", "20-bad"):
        (folder / name).chmod(0o755)
    with pilot(hub.url, tmp_path / "p", "--site-checks", str(folder)) as one:
        assert one.status() == 10
    assert [(one["name"], one["kind"], one["ok"]) for one in hub.checks or []] == [
        ("10-good", "site", True),
        ("20-bad", "site", False),
    ]


def test_a_check_that_fails_later_drains_the_pilot(hub, tmp_path):
    folder = tmp_path / "checks"
    folder.mkdir()
    (folder / "look").write_text(f"#!/bin/sh\ntest ! -e {tmp_path}/bad\n")
    (folder / "look").chmod(0o755)
    options = ["--site-checks", str(folder), "--recheck", "0.3s"]
    with pilot(hub.url, tmp_path / "p", *options) as one:
        _ready(hub)
        gate = tmp_path / "gate"
        hub.grant("1.1", "sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.05; done")
        wait_for(lambda: hub.ops("sync") and not hub.fresh)
        (tmp_path / "bad").touch()
        wait_for(lambda: any(sync["drain"] for sync in hub.ops("sync")))
        gate.touch()
        assert one.status() == 10
    assert hub.ends["1.1"]["exit"] == 0


def test_set_up_of_the_site_makes_the_environment(tmp_path):
    script = tmp_path / "setup"
    script.write_text("#!/bin/sh\necho noise\necho FOO=from $BASE >&3\necho 'no line' >&3\n")
    script.chmod(0o755)
    hub = Hub(env={"BASE": "hub"}, setup=[str(script)])
    with pilot(hub.url, tmp_path / "p"):
        _ready(hub)
        hub.grant("1.1", "sh", "-c", "echo $BASE $FOO")
        wait_for(lambda: "1.1" in hub.ends)
    assert hub.logs["1.1", "stdout"] == b"hub from hub\n"
    hub.close()


def test_a_set_up_that_fails_is_a_failed_check(tmp_path):
    hub = Hub(setup=["/nonexistent/setup"])
    with pilot(hub.url, tmp_path / "p") as one:
        assert one.status() == 10
    assert "/nonexistent/setup" in (hub.checks or [{}])[0]["words"]
    hub.close()


def test_an_idle_pilot_leaves(hub, tmp_path):
    # From when it is enrolled: what it takes to come there does not count.
    hub.terms["idle"] = 1.0
    with pilot(hub.url, tmp_path) as one:
        assert one.status() == 0
    assert hub.left == "no work for 1 s"
    # It takes no more before it leaves, so that no grant crosses its good-bye.
    assert hub.ops("sync")[-1]["drain"]


@pytest.mark.slow
def test_a_pilot_retires_before_its_time_is_over_and_tells_what_it_stopped(hub, tmp_path):
    # On a busy machine it takes seconds until it has enrolled.
    with pilot(hub.url, tmp_path, "--lifetime", "25s") as one:
        begun = time.monotonic()
        _ready(hub)
        assert 0 < hub.facts["lifetime"] <= 25
        hub.grant("1.1", "sleep", "100")
        stubborn = "import signal,time;signal.signal(15, signal.SIG_IGN);time.sleep(100)"
        hub.grant("2.1", PYTHON, "-c", stubborn)
        assert one.status() == 0
        # It is gone before its node is, but for what a busy machine takes.
        assert time.monotonic() - begun < 25 + 30
    assert hub.ends["1.1"]["reason"] == hub.ends["2.1"]["reason"] == "stopped"
    assert hub.ends["2.1"]["signal"] == signal.SIGKILL


def test_sigterm_stops_payloads_politely_reports_and_leaves(hub, tmp_path):
    with pilot(hub.url, tmp_path) as one:
        _ready(hub)
        code = "trap 'echo bye; exit 0' TERM; while :; do sleep 0.1; done"
        hub.grant("1.1", "sh", "-c", code)
        wait_for(lambda: any(sync["started"] for sync in hub.ops("sync")))
        one.terminate()
        assert one.status() == 0
    assert hub.ends["1.1"]["reason"] == "stopped"
    assert hub.logs["1.1", "stdout"] == b"bye\n"
    assert hub.left is not None


def test_a_second_sigterm_does_not_wait(hub, tmp_path):
    deaf = tmp_path / "deaf"
    stubborn = (
        "import pathlib,signal,time;signal.signal(15, signal.SIG_IGN);"
        f"pathlib.Path({str(deaf)!r}).touch();time.sleep(100)"
    )
    with pilot(hub.url, tmp_path) as one:
        _ready(hub)
        hub.grant("1.1", PYTHON, "-c", stubborn)
        wait_for(deaf.exists)
        begun = time.monotonic()
        one.terminate()
        wait_for(lambda: any(sync["drain"] for sync in hub.ops("sync")))
        one.terminate()
        assert one.status() == 0
        assert time.monotonic() - begun < node._GRACE_S
    assert hub.ends["1.1"]["reason"] == "stopped"


def test_drain_finishes_and_bye_does_not(hub, tmp_path):
    with pilot(hub.url, tmp_path / "a") as one:
        _ready(hub)
        hub.grant("1.1", "sleep", "1")
        wait_for(lambda: not hub.fresh)
        hub.say(drain="maintenance")
        assert one.status() == 0
        assert hub.ends["1.1"]["exit"] == 0
        assert hub.left == "maintenance"
    hub.drain, hub.checks = "", None
    with pilot(hub.url, tmp_path / "b") as one:
        _ready(hub)
        hub.grant("2.1", "sleep", "100")
        wait_for(lambda: not hub.fresh)
        hub.say(bye=True)
        assert one.status() == 0
        assert hub.ends["2.1"]["reason"] == "stopped"


def test_the_hub_stops_one_payload(shared):
    shared.grant("13.1", "sleep", "100")
    wait_for(lambda: any("13.1" in dict(sync["started"]) for sync in shared.ops("sync")))
    shared.say(stops=[{"key": "13.1", "message": "cancelled", "grace": 1.0}])
    wait_for(lambda: "13.1" in shared.ends)
    assert shared.ends["13.1"]["message"] == "cancelled"


def test_two_pilots_of_one_node_have_folders_of_their_own(hub, tmp_path):
    other = Hub()
    with pilot(hub.url, tmp_path) as one:
        _ready(hub)
        with pilot(other.url, tmp_path) as two:
            _ready(other)
            assert hub.facts["work"] != other.facts["work"]
            two.terminate()
            assert two.status() == 0
        hub.grant("1.1", "true")
        wait_for(lambda: "1.1" in hub.ends)
        one.terminate()
        assert one.status() == 0
    other.close()


def test_a_refused_pilot_leaves_at_once(hub, tmp_path):
    hub.errors["hello"] = {"code": "E500", "message": "the token was used", "hint": ""}
    with pilot(hub.url, tmp_path) as one:
        assert one.status() == 11
        assert "the token was used" in one.words


@pytest.mark.parametrize("argv", [("sleep", "1000"), ("sh", "-c", "sleep 1000; exit $?")])
def test_payloads_that_were_ended_with_their_pilot_were_stopped(hub, tmp_path, argv):
    """A batch system that ends a job signals all its processes, often the last of them first."""
    with pilot(hub.url, tmp_path) as one:
        _ready(hub)
        keys = [f"{number}.1" for number in range(4)]
        for key in keys:
            hub.grant(key, *argv)
        started: dict[str, int] = {}

        def all_run() -> bool:
            started.update(entry for sync in hub.ops("sync") for entry in sync["started"])
            below = processes.below(one.process.pid)
            return len(started) == len(keys) and sum(_sleeps(each.pid) for each in below) == 4

        wait_for(all_run)
        for each in reversed(processes.below(one.process.pid)):
            each.send(signal.SIGTERM)
        one.terminate()
        assert one.status() == 0
    assert {key: hub.ends[key]["reason"] for key in keys} == dict.fromkeys(keys, "stopped")


def _sleeps(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0")
    return False


def test_payloads_do_not_outlive_a_pilot_that_is_killed(hub, tmp_path):
    with pilot(hub.url, tmp_path) as one:
        _ready(hub)
        hub.grant("1.1", "sleep", "1000")
        wait_for(lambda: any(sync["started"] for sync in hub.ops("sync")))
        pid = next(sync["started"][0][1] for sync in hub.ops("sync") if sync["started"])
        assert _runs(pid)
        one.process.kill()
        wait_for(lambda: not _runs(pid))


def test_a_starter_that_dies_costs_its_payloads_and_nothing_else(hub, tmp_path):
    with pilot(hub.url, tmp_path) as one:
        _ready(hub)
        hub.grant("1.1", "sleep", "1000")
        wait_for(lambda: any(sync["started"] for sync in hub.ops("sync")))
        pid = next(sync["started"][0][1] for sync in hub.ops("sync") if sync["started"])
        starter = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(starter, signal.SIGKILL)
        wait_for(lambda: "1.1" in hub.ends)
        assert hub.ends["1.1"]["reason"] == "lost"
        assert not _runs(pid)
        hub.grant("2.1", "true")
        wait_for(lambda: "2.1" in hub.ends)
        assert hub.ends["2.1"]["exit"] == 0
        assert one.process.poll() is None


def test_long_checks_do_not_cost_the_lease(tmp_path):
    slow = {"name": "slow", "kind": "hub", "source": "#!/bin/sh\nsleep 2\n", "timeout": 60.0}
    hub = Hub(checks=[slow], heartbeat=0.3, lease=60.0)
    with pilot(hub.url, tmp_path) as one:
        _ready(hub)
        # While the check ran, the hub heard of the pilot at least every second heartbeat.
        assert len(hub.ops("resume")) >= 2
        hub.grant("1.1", "true")
        wait_for(lambda: "1.1" in hub.ends)
        one.terminate()
        assert one.status() == 0
    hub.close()


def test_a_greeting_whose_answer_was_lost_is_repeated_with_the_same_key(hub, tmp_path):
    hub.lose.add("hello")
    with pilot(hub.url, tmp_path) as one:
        _ready(hub)
        first, second = hub.ops("hello")
        assert first["key"] == second["key"]
        one.terminate()
        assert one.status() == 0


def test_a_disk_on_which_nothing_can_be_written_does_not_end_the_pilot(hub, tmp_path):
    hub.terms["lease"] = 60.0
    with pilot(hub.url, tmp_path) as one:
        _ready(hub)
        hub.grant("1.1", "sleep", "0.5")
        wait_for(lambda: any(sync["started"] for sync in hub.ops("sync")))
        (one.folder / "spool").rmdir()
        hub.shut = True
        hub.cut()
        wait_for(lambda: "cannot write ends down" in one.words)
        hub.shut = False
        wait_for(lambda: "1.1" in hub.ends)
        assert hub.ends["1.1"]["exit"] == 0
