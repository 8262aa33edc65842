"""Who may run what, and where data may come from and go to."""

from __future__ import annotations

import hashlib
import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from pilotage.agent.app import hosts, policy
from pilotage.agent.app.model import Application, AppLimits, Config, Parameter, Staging
from pilotage.bus.model import Input, Job, Output, Resources
from pilotage.data.transfer import allow
from tests.corpus import injection
from tests.suite import every

APP = Application(
    executable="/bin/sim", sha256="0" * 64, users=("CN=*,O=atlas",), env_allow=("OMP_NUM_THREADS",),
    parameter={"events": Parameter(kind="integer", minimum=1)},
    limits=AppLimits(
        queues=("batch", "debug"), projects=("atlas",), nodes=4, tasks=8, cpus=2, memory="8G",
        time="2h", jobs=2, options=("--exclusive", "--constraint"),
    ),
    user={"CN=big,O=atlas": {"nodes": 100, "jobs": 0}},
    staging=Staging(hosts=("data.example.org",), protocols=("https", "sftp")),
)  # fmt: skip
GOOD = Job(
    site="here", application="sim", parameters={"events": 5}, queue="batch", project="atlas",
    nodes=4, tasks=8, wall_time=7200, resources=Resources(cpus=2, memory=8 * 10**9),
    options=("--exclusive", "--constraint=knl"), env={"OMP_NUM_THREADS": "2"},
    inputs=(Input(url="https://data.example.org/in/", path="in"),),
    outputs=(Output(url="sftp://me@data.example.org/out/", path="out/"),),
)  # fmt: skip
ALICE = "CN=alice,O=atlas"


def change(job: Job, **more: Any) -> Job:
    return type(job)(**{name: getattr(job, name) for name in job.__struct_fields__} | more)


def test_a_good_job_may_run():
    assert policy.judge(APP, GOOD, ALICE, live=1) == policy.PolicyVerdict(())
    assert policy.judge(APP, GOOD, ALICE).allowed


@pytest.mark.parametrize(
    "more, word",
    [
        ({"queue": "root"}, "queue"),
        ({"project": "other"}, "project"),
        ({"nodes": 5}, "nodes"),
        ({"tasks": 9}, "tasks"),
        ({"wall_time": 7201}, "wall_time"),
        ({"resources": Resources(cpus=3)}, "resources.cpus"),
        ({"resources": Resources(gpus=1)}, "resources.gpus"),
        ({"resources": Resources(memory=10**10)}, "resources.memory"),
        ({"options": ("--uid=0",)}, "options"),
        ({"options": ("--exclusive=user",)}, ""),
        ({"env": {"LD_PRELOAD": "x"}}, "LD_PRELOAD"),
        ({"config": "x"}, "config"),
        ({"config_file": "x"}, "config"),
        ({"parameters": {}}, "events"),
        ({"parameters": {"events": 0}}, "events"),
        ({"parameters": {"events": 1, "more": 1}}, "more"),
        ({"inputs": (Input(url="http://data.example.org/x"),)}, "inputs[0].url"),
        ({"inputs": (Input(url="https://other.example/x"),)}, "inputs[0].url"),
        ({"outputs": (Output(url="https://data.example.org/", path="a//b"),)}, "outputs[0].path"),
    ],
)
def test_what_is_too_much_is_told(more: dict[str, Any], word: str):
    verdict = policy.judge(APP, change(GOOD, **more), ALICE)
    assert verdict.allowed == (not word)
    assert all(word in reason for reason in verdict.reasons)


SMALL: dict[str, Any] = {"path": "a", "content": "eA==", "sha256": hashlib.sha256(b"x").hexdigest()}


@pytest.mark.parametrize(
    "protocols, change, word",
    [
        (("message",), {}, ""),
        (("https", "hub"), {}, ""),
        (("message",), {"sha256": ""}, ""),
        (("message",), {"content": "", "sha256": ""}, ""),
        (("https", "sftp"), {}, "neither `message` nor `hub`"),
        (("message", "https"), {"url": "https://data.example.org/x"}, "both"),
        (("message",), {"content": UNSET}, "neither `url` nor"),
        (("message",), {"sha256": "0" * 64}, "SHA-256"),
        (("message",), {"content": "eA="}, "base64"),
        (("message",), {"path": ""}, "`path`"),
        (("message",), {"path": "a/"}, "`path`"),
    ],
)
def test_a_small_input_may_come_with_its_message(protocols, change, word):
    found = hosts.why_not_input(Input(**SMALL | change), Staging(protocols=protocols))
    assert word in found if word else not found


def test_all_reasons_are_told_at_once():
    bad = change(GOOD, queue="x", nodes=99, parameters={}, inputs=(Input(url="ftp://x/"),))
    verdict = policy.judge(APP, bad, "CN=eve,O=other", live=9)
    assert len(verdict.reasons) == 6


def test_who_it_is_matters():
    assert not policy.judge(APP, GOOD, "CN=eve").allowed
    assert not policy.judge(APP, GOOD, "").allowed
    assert not policy.judge(APP, GOOD, ALICE, live=2).allowed
    big = change(GOOD, nodes=100)
    assert not policy.judge(APP, big, ALICE).allowed
    assert policy.judge(APP, big, "CN=big,O=atlas", live=1000).allowed


def test_an_application_that_is_disabled_runs_for_nobody():
    off = change(APP, enabled=False)  # type: ignore[arg-type]
    assert "disabled" in policy.judge(off, GOOD, ALICE).reasons[0]  # type: ignore[arg-type]


def test_what_a_config_may_bring_is_not_missed_yet():
    one: Any = change(APP, config=Config())  # type: ignore[arg-type]
    assert policy.judge(one, change(GOOD, parameters={}, config_file="run.cfg"), ALICE).allowed
    bad = change(GOOD, parameters={"events": -1}, config="events = 1")
    assert not policy.judge(one, bad, ALICE).allowed
    both = change(GOOD, config="x = 1", config_file="y")
    assert not policy.judge(one, both, ALICE).allowed


def test_what_a_job_leaves_open_is_settled_within_its_limits():
    left = Job(site="here", application="sim", parameters={"events": 5})
    found = policy.settle(APP, left, ALICE)
    assert (found.queue, found.project, found.wall_time) == ("batch", "atlas", 7200)
    assert policy.judge(APP, found, ALICE).allowed
    assert policy.settle(APP, GOOD, ALICE) == GOOD


# -- hosts ---------------------------------------------------------------------------------------

OPEN = Staging(hosts=("*", "*:22", "*:99999", "*:8443"), protocols=("http", "https", "sftp"))
ONE = Staging(
    hosts=("data.example.org", "*.cern.ch", "odd.example.org:8443", "[2606:4700::1]"),
    protocols=("http", "https", "sftp", "file"), roots=("/data/in",),
)  # fmt: skip


@pytest.mark.parametrize(
    "url",
    [
        "https://data.example.org/x/y",
        "https://DATA.example.org/x",
        "https://data.example.org:443/x?a=b",
        "sftp://me@data.example.org/x",
        "https://a.b.cern.ch/x",
        "https://odd.example.org:8443/x",
        "https://[2606:4700::1]/x",
        "file:///data/in/x",
    ],
)
def test_a_url_that_is_allowed(url: str):
    assert hosts.why_not(url, ONE) == ""


@pytest.mark.parametrize(
    "url",
    [
        "https://cern.ch/x",
        "https://evilcern.ch/x",
        "https://data.example.org.evil/x",
        "https://data.example.org:8443/x",
        "https://odd.example.org/x",
        "https://me@data.example.org/x",
        "sftp://me:pw@data.example.org/x",
        "sftp://-oProxyCommand=x@data.example.org/x",
        "https://data.example.org/a/../b",
        "https://data.example.org/%2e%2e/b",
        "https://data.example.org/%252e%252e/b",
        "sftp://data.example.org/x?y",
        "https://data.example.org/x#y",
        "file:///data/other",
        "file:///data/in/../x",
        "file:///data/input/x",
        "file://data.example.org/data/in/x",
        "file://localhost/data/in/x",
        "gsiftp://data.example.org/x",
        "HTTPS://data.example.org/x",
        "",
    ],
)
def test_a_url_that_is_not_allowed(url: str):
    assert hosts.why_not(url, ONE)


#: Those of the corpus that name a host out there, which may be what is meant.
_OUTSIDE = {
    "http://data.example.org.evil.example/x", "http://evil.example/data.example.org",
    "rsync://data.example.org/--rsh=touch", "http://data.example.org:22/x",
    "http://data.example.org:99999/x",
}  # fmt: skip


def test_no_url_of_the_corpus_leads_into_the_site():
    with every.cases() as case:
        for url in injection.URLS:
            with case(repr(url)):
                assert url in _OUTSIDE or hosts.why_not(url, OPEN)
                assert hosts.why_not(url, Staging(hosts=("data.example.org",)))


def test_a_network_of_the_site_can_be_allowed():
    inner = Staging(
        hosts=("10.1.2.3", "localhost:8080", "dtn"), private=("10.1.0.0/16", "127.0.0.0/8"),
        protocols=("http",),
    )  # fmt: skip
    assert hosts.why_not("http://10.1.2.3/x", inner) == ""
    assert hosts.why_not("http://localhost:8080/x", inner) == ""
    assert hosts.why_not("http://dtn/x", inner) == ""
    assert hosts.why_not("http://10.2.2.3/x", inner)
    for address in ("10.1.9.9", "127.0.0.1"):
        assert allow.open_to_all(ipaddress.ip_address(address), inner.private)
    for address in ("10.2.0.1", "169.254.169.254", "::ffff:10.2.0.1", "fe80::1"):
        assert not allow.open_to_all(ipaddress.ip_address(address), inner.private)


@given(st.ip_addresses())
def test_an_address_is_reached_only_if_it_is_out_there(address: Any):
    reached = allow.open_to_all(address, OPEN.private)
    if reached:
        assert address.is_global
        assert not address.is_multicast
    host = f"[{address}]" if address.version == 6 else str(address)
    allowed = hosts.why_not(f"http://{host}/x", OPEN) == ""
    assert allowed == reached


@given(st.text(max_size=80))
def test_any_text_is_a_url_or_a_reason(text: str):
    for url in (text, f"https://{text}", f"https://data.example.org/{text}"):
        reason = hosts.why_not(url, ONE)
        assert isinstance(reason, str)
        if not reason:
            assert url.startswith(("https://", "http://", "sftp://", "file:///data/in"))
