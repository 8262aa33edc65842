"""When a pilot takes more, stops and leaves; and the words it is started with."""

from __future__ import annotations

import random

import pytest

from pilotage.node import dial, environment, link, options, policy
from pilotage.node.policy import StayLimits


def test_only_tiny_jobs_are_asked_for_ahead():
    assert policy.ahead(4, 1.0) == 0
    assert policy.ahead(4, 0.1) == 0
    assert policy.ahead(2, 0.05) == 4
    assert policy.ahead(64, 0.001) == 32
    assert policy.ahead(1, 0.0) == 32


def test_payloads_stop_before_the_hub_gives_them_away():
    assert not policy.fenced(119.0, 0.0, 150.0)
    assert policy.fenced(121.0, 0.0, 150.0)


def test_a_life_ends_in_time():
    limits = StayLimits.of(1000.0, 3600.0, None)
    assert limits.grace == 60.0
    assert limits.drain(1000.0 + 3470, 4470.0, busy=True) == ""
    assert limits.drain(1000.0 + 3490, 4490.0, busy=True) == "its lifetime ends"
    assert not limits.stop(1000.0 + 3530)
    assert limits.stop(1000.0 + 3541)
    last = limits.last_moment()
    assert last is not None
    assert last < 4600


def test_without_work_it_leaves_unless_ends_wait_to_be_told():
    limits = StayLimits.of(0.0, None, 60.0)
    assert limits.drain(61.0, 0.0, busy=False) == "no work for 60 s"
    assert limits.drain(61.0, 0.0, busy=True) == ""
    assert not limits.hopeless(3600.0, 0.0)


def test_pauses_grow_and_differ():
    dice = random.Random(1)
    pauses = [link.pause(number, dice) for number in range(40)]
    assert pauses[0] <= 0.2
    assert max(pauses) <= 30.0
    assert len(set(pauses)) == 40
    assert all(one >= 15.0 for one in pauses[10:])


def test_sizes_times_and_attributes():
    assert options.size("8G") == 8 << 30
    assert options.size("1.5KiB") == 1536
    assert options.seconds("12h") == 43200
    assert options.attribute("a=1") == ("a", 1)
    assert options.attribute("a=1.5") == ("a", 1.5)
    assert options.attribute("a=true") == ("a", True)
    assert options.attribute("a=x=y") == ("a", "x=y")
    for wrong in (["--memory", "x"], ["--idle", "soon"], ["--attribute", "1=2"], ["--cpus", "0"]):
        with pytest.raises(SystemExit):
            options.parse(["--hub", "https://h", *wrong])


def test_ways_to_the_hub(monkeypatch):
    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    way = dial.route("https://hub.example")
    assert (way.host, way.port, way.kind, way.via) == ("hub.example", 8420, "direct", ("", 0))
    assert dial.route("https://h:1", "relay:[fe80::1]:99").via == ("fe80::1", 99)
    assert dial.route("https://h:1", "spool:/x").folder == "/x"
    assert dial.route("http://localhost:1").tls is None
    assert dial.route("http://h:1", insecure=True).tls is None
    proxied = dial.route("https://h:1", proxy="http://a:b%3A@p:8")
    assert (proxied.via, proxied.login) == (("p", 8), "a:b:")
    for wrong in (
        ("ftp://h",), ("h:1",), ("http://h",), ("https://h", "relay:"), ("https://h", "spool"),
        ("https://h", "relay:x"), ("https://h", "direct", "https://p"),
        ("https://h", "direct", None, "/nonexistent"), ("http://127.0.0.1", "spool:/x"),
    ):  # fmt: skip
        with pytest.raises(dial.RouteError):
            dial.route(*wrong)


def test_little_of_the_environment_reaches_payloads():
    env = {
        "PATH": "/bin", "LC_ALL": "C", "SLURM_JOB_ID": "1", "SLURM_JWT": "x", "LD_PRELOAD": "y",
        "AWS_SECRET_ACCESS_KEY": "z", "PILOTAGE_SECRET": "s", "SSH_AUTH_SOCK": "a",
        "FLUX_URI": "local:///run/flux", "_CONDOR_CREDS": "/creds",
    }  # fmt: skip
    assert environment.scrubbed(env) == {
        "PATH": "/bin", "LC_ALL": "C", "SLURM_JOB_ID": "1", "FLUX_URI": "local:///run/flux",
    }  # fmt: skip


def test_a_script_says_who_reads_it():
    assert environment.interpreter("#!/usr/bin/env python3\n") == ["/usr/bin/env", "python3"]
    assert environment.interpreter("echo") == ["/bin/sh"]
    assert environment.interpreter("#! 'x\n") == ["/bin/sh"]


def test_a_script_that_leaves_a_child_does_not_keep_us(tmp_path):
    outcome = environment.run(["sh", "-c", "sleep 100 & echo hi"], {"PATH": "/bin:/usr/bin"},
                          str(tmp_path), "x", 5.0)  # fmt: skip
    assert (outcome.ok, outcome.words) == (True, "hi")
