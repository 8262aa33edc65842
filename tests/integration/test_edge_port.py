"""Sites whose agents dial the hub's own port: no broker is anywhere."""

from __future__ import annotations

import json
import secrets
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pilotage.base import errors
from pilotage.base.crash import LINK, PORT, REMOTE
from pilotage.edge.data import EdgeData
from pilotage.edge.handoff import Take
from pilotage.edge.port import keys
from pilotage.flow import events
from pilotage.flow.model import Flow, Step
from pilotage.job.model import Command, State
from pilotage.project.settings import port_folder
from pilotage.store import connect
from tests.rigs.broker.dialing_agent import OVER, DialingAgent, command, pair
from tests.rigs.project.flow_hub import Hub

_UPPER = {
    "argv": ["{source}", "{target}"],
    "parameter": {"source": {"kind": "path"}, "target": {"kind": "path"}},
}
#: Puts two files together, and says how long they are.
_JOIN = 'mkdir -p out/deep; cat "$1" "$2" > out/both; wc -c < out/both > out/deep/size'
_TWO = {"a": {"kind": "path"}, "b": {"kind": "path"}}
_RULES = """
[rule.far]
files = "in/*.txt"
app = "upper"
site = "{site}"
params = {{ source = "{{path}}", target = "out/{{stem}}.up" }}
outputs = {{ up = "out/{{stem}}.up" }}
"""
#: Those on the way of a message into the agent, and of what it says: some are passed with no job.
_AGENT = (
    "edge.delivered", "edge.judged", "edge.committed", "edge.acked", "edge.published:2",
    "edge.sent:2",
)  # fmt: skip


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hub, DialingAgent]]:
    """There is no transfer server either: data goes by the hub's own port."""
    root = tmp_path_factory.mktemp("port")

    def equip(site: DialingAgent) -> None:
        does = 'mkdir -p "$(dirname "$2")"; tr a-z A-Z < "$1" > "$2"'
        site.programs.add("upper", does, **_UPPER)
        site.programs.add("join", _JOIN, argv=["{a}", "{b}"], parameter=_TWO)
        (root / "hub" / "in").mkdir()

    rules = _RULES.format
    with pair(root, equip, rules=lambda site: rules(site=site.site)) as both:
        yield both


@pytest.fixture
def hub(both: tuple[Hub, DialingAgent]) -> Hub:
    return both[0]


@pytest.fixture
def site(both: tuple[Hub, DialingAgent]) -> DialingAgent:
    return both[1]


def test_the_job_of_a_rule_runs_there_and_its_output_comes_home(hub: Hub, site: DialingAgent):
    (hub.root / "in" / "a.txt").write_text("quick brown fox")
    home = hub.root / "out" / "a.up"
    site.wait(home.exists)
    assert home.read_text() == "QUICK BROWN FOX"
    # Its file went with the message: nothing was read from the port.
    assert hub.query("SELECT count(*) FROM edge_access WHERE NOT write") == [(0,)]
    site.wait(lambda: hub.query("SELECT state FROM job WHERE rule = 'far'") == [("done",)])


def test_a_submission_runs_there_and_its_log_comes_home(hub: Hub, site: DialingAgent):
    recipe = {"kind": "app", "app": "count"}
    file = hub.root / "job.json"
    file.write_text(json.dumps({"recipe": recipe, "name": "mine", "site": site.site}))
    said = command(hub, "submit", "--json", str(file))
    job = int(json.loads(said.splitlines()[0])["id"])
    assert site.wait_over(job) == [State.DONE], said
    assert command(hub, "logs", str(job)).strip() == "counted"


def test_steps_of_a_workflow_run_there_and_hand_their_data_on(hub: Hub, site: DialingAgent):
    (hub.root / "seed.txt").write_text("quick")
    upper: dict[str, Any] = {"application": "upper", "sites": (site.site,)}
    steps = {
        "first": Step(
            **upper, parameters={"source": "seed.txt", "target": "one"}, outputs=("one",),
            inputs=(Take(url="seed.txt", path="seed.txt"),),
        ),
        "second": Step(
            **upper, parameters={"source": "one", "target": "two"}, outputs=("two",),
            inputs=(Take(step="first"),), needs=("first",),
        ),
    }  # fmt: skip
    number = hub.submit(Flow(name="ported", steps=steps, to="results"))
    assert hub.wait_over(number) == ["done"], hub.told()
    assert (hub.root / "results" / "two").read_text() == "QUICK"
    rows = hub.query("SELECT name, state FROM job WHERE tag = ? ORDER BY id", f"flow:{number}")
    assert rows == [("ported/first", "done"), ("ported/second", "done")]


# -- data, by the hub's own port -------------------------------------------------------------------


def upper(site: DialingAgent, source: str, target: str) -> int:
    """Have a file written in capitals at the site."""
    return site.stage("upper", [source], [target], source=source, target=target)


def kept(hub: Hub) -> list[str]:
    """Name all that lies at the port of the hub for jobs."""
    top = port_folder(hub.root / ".pilotage") / "jobs"
    return [str(one) for one in top.rglob("*") if one.is_file()]


def test_several_inputs_go_there_and_several_outputs_come_home(hub: Hub, site: DialingAgent):
    for name, text in (("in/one.a", "quick "), ("in/deep/two.b", "fox\n")):
        (hub.root / name).parent.mkdir(exist_ok=True)
        (hub.root / name).write_text(text)
    job = site.stage(
        "join", ["in/one.a", "in/deep/two.b"], ["out/both", "out/deep/size"],
        a="in/one.a", b="in/deep/two.b",
    )  # fmt: skip
    assert site.wait_over(job) == [State.DONE], site.told()
    assert (hub.root / "out" / "both").read_text() == "quick fox\n"
    assert (hub.root / "out" / "deep" / "size").read_text().strip() == "10"
    # What is not needed any more is removed.
    site.wait(lambda: not kept(hub))


def test_an_input_of_many_jobs_goes_there_once(hub: Hub, site: DialingAgent):
    size = 3_000_000
    (hub.root / "in" / "shared").write_bytes(secrets.token_bytes(size))
    before = site.proxy.passed("down")
    jobs = [
        site.stage("join", ["in/shared"], ["out/deep/size"], a="in/shared", b="in/shared")
        for _ in range(12)
    ]
    assert site.wait_over(*jobs) == [State.DONE] * 12, site.told()
    assert (hub.root / "out" / "deep" / "size").read_text().strip() == str(2 * size)
    assert size <= site.proxy.passed("down") - before < 2 * size
    site.wait(lambda: not kept(hub))


def test_data_goes_from_site_to_hub_and_to_another_site(
    hub: Hub, site: DialingAgent, tmp_path: Path
):
    with DialingAgent(tmp_path / "other", hub, site.hub_port) as other:
        other.programs.add("join", _JOIN, argv=["{a}", "{b}"], parameter=_TWO)
        # A workflow may be sent before the agent has enrolled.
        other.enrol()
        other.start()
        (hub.root / "seed.txt").write_text("quick")
        rev = {"kind": "command", "argv": ["sh", "-c", "rev < one > two"]}
        steps = {
            "first": Step(
                application="upper", sites=(site.site,), outputs=("one",),
                parameters={"source": "seed.txt", "target": "one"},
                inputs=(Take(url="seed.txt", path="seed.txt"),),
            ),
            "here": Step(
                recipe=rev, outputs=("two",), inputs=(Take(step="first"),), needs=("first",)
            ),
            "second": Step(
                application="join", sites=(other.site,), outputs=("out/both",),
                parameters={"a": "one", "b": "two"},
                inputs=(Take(step="first"), Take(step="here")), needs=("first", "here"),
            ),
        }  # fmt: skip
        number = hub.submit(Flow(name="around", steps=steps, to="around"))
        assert hub.wait_over(number) == ["done"], hub.told()
    assert (hub.root / "around" / "out" / "both").read_text().split() == ["QUICKKCIUQ"]
    # Ends of steps name what they left by its path here.
    with hub._rig.project() as project:
        (task,) = hub.query("SELECT id FROM flow_task WHERE flow = ? AND step = 'first'", number)
        (left,) = events._left(project.db, task[0], 1, "done", str(hub.root))
    assert Path(left.removeprefix("file://")).read_text() == "QUICK"


@pytest.mark.crash_points
@pytest.mark.parametrize("point", [*PORT, "remote.home"])
def test_a_hub_killed_while_data_comes_has_it_once(hub: Hub, site: DialingAgent, point: str):
    name = point.replace(".", "-")
    (hub.root / "in" / name).write_text(name)
    before = len(site.programs.starts())
    hub.kill()
    job = upper(site, f"in/{name}", f"out/{name}")
    try:
        hub.dies(point)
    finally:
        hub.start()
    assert site.wait_over(job) == [State.DONE], site.told()
    assert (hub.root / "out" / name).read_text() == name.upper()
    assert len(site.programs.starts()) == before + 1
    site.wait(lambda: not kept(hub))


def test_a_hub_killed_in_the_middle_of_a_file_sends_the_rest_later(hub: Hub, site: DialingAgent):
    (hub.root / "in" / "long").write_bytes(secrets.token_hex(1_000_000).encode())
    before, starts = site.proxy.passed("down"), len(site.programs.starts())
    site.proxy.slow(200_000, "down")
    try:
        job = upper(site, "in/long", "out/long")
        site.wait(lambda: site.proxy.passed("down") - before > 300_000)
        hub.kill()
    finally:
        site.proxy.well()
        hub.start()
    assert site.wait_over(job) == [State.DONE], site.told()
    text = (hub.root / "in" / "long").read_text()
    assert (hub.root / "out" / "long").read_text() == text.upper()
    assert len(site.programs.starts()) == starts + 1


def test_a_site_by_the_broker_would_need_a_transfer_server(hub: Hub, site: DialingAgent):
    """The words that a user sees; nothing is sent where it could not be fetched."""
    with hub._rig.project() as project, closing(connect(project.db.path)) as db:
        data = EdgeData(project, db)
        assert data.folder(1, 1, site.site)[0].startswith("hub://port/data/jobs/")
        with pytest.raises(errors.UsageError, match=r"flows\.data"):
            data.folder(1, 1, "elsewhere")


def test_a_failure_there_is_one_here_with_its_reason(site: DialingAgent):
    ended = site.wait_job(site.submit("fail", status=3), *OVER)
    assert (ended.state, ended.reason) == (State.FAILED, "exited with code 3")


def test_what_the_site_refuses_is_rejected_with_the_reason(site: DialingAgent):
    ended = site.wait_job(site.submit("count", label="; rm"), *OVER)
    assert ended.state is State.REJECTED
    assert "label" in ended.reason


def test_a_job_that_is_cancelled_ends_there(hub: Hub, site: DialingAgent):
    job = site.submit("gate")
    site.wait_job(job, State.RUNNING)
    with hub.change() as project:
        project.cancel([job])
    assert site.wait_over(job) == [State.CANCELLED]
    site.wait(lambda: not site.programs.running())


def test_a_command_is_not_matched_and_explained(hub: Hub, site: DialingAgent):
    job = site.submit(Command(("true",)))
    assert "only applications" in command(hub, "explain", str(job))


def test_the_key_is_the_agents_alone_and_no_secret_is_told(hub: Hub, site: DialingAgent):
    file = site.root / ".pilotage" / keys.FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = json.loads(file.read_bytes())
    stored = hub.query("SELECT digest, scope, site, uses FROM token WHERE site = ?", site.site)
    assert [row[1:] for row in stored] == [("agent", site.site, None)]
    for secret in (found["key"], *site.secrets):
        assert secret not in (hub.said, site.said, *stored[0])
        assert secret not in hub.said + site.said


def test_many_jobs_run_once_each_over_a_line_that_is_cut_again_and_again(site: DialingAgent):
    before = len(site.programs.starts())
    numbers = []
    for _ in range(6):
        numbers += [site.submit("count") for _ in range(5)]
        site.proxy.cut()
    assert site.wait_over(*numbers) == [State.DONE] * 30
    assert len(site.programs.starts()) == before + 30


def test_a_line_that_is_half_open_is_given_up_and_made_anew(site: DialingAgent):
    site.proxy.blackhole("down")
    before = site.proxy.connections
    job = site.submit("count")
    site.wait(lambda: site.proxy.connections > before)
    site.proxy.well()
    assert site.wait_over(job) == [State.DONE]


def test_a_drained_site_gets_nothing_until_it_is_resumed(hub: Hub, site: DialingAgent):
    site.command("agent", "drain")
    try:
        site.wait(lambda: site.state() == "draining")
        # One may be matched, and run, just before that is known here or counts there.
        job = next(one for _ in range(20) if kept_back(hub, site, one := site.submit("count")))
    finally:
        site.command("agent", "resume")
    assert site.wait_over(job) == [State.DONE]


def kept_back(hub: Hub, site: DialingAgent, job: int) -> bool:
    """Wait until a job is over or is said to wait for its site; return whether it waits."""
    words = ("takes no more jobs", "drain", "no agent listens", "waits there")

    def waits() -> bool:
        return any(one in command(hub, "explain", str(job)) for one in words)

    site.wait(lambda: waits() or over(site, job))
    return not over(site, job)


def over(site: DialingAgent, job: int) -> bool:
    """Whether a job has ended."""
    ((state,),) = site.hub.query("SELECT state FROM job WHERE id = ?", job)
    return state in OVER


@pytest.mark.crash_points
@pytest.mark.parametrize("point", [one for one in REMOTE if one != "remote.home"])
def test_a_hub_killed_at_any_point_has_each_job_run_once(hub: Hub, site: DialingAgent, point: str):
    before = len(site.programs.starts())
    hub.kill()
    job = site.submit("count")
    try:
        hub.dies(point)
    finally:
        hub.start()
    assert site.wait_over(job) == [State.DONE]
    assert len(site.programs.starts()) == before + 1


@pytest.mark.crash_points
@pytest.mark.parametrize("point", _AGENT)
def test_an_agent_killed_at_any_point_runs_each_job_once(site: DialingAgent, point: str):
    before = len(site.programs.starts())
    site.kill()
    try:
        site.start(crash=point, ready=False)
        job = site.submit("count")
        assert site.process.wait(90) == -9, site.told()
    finally:
        site.kill()
        site.start()
    assert site.wait_over(job) == [State.DONE]
    assert len(site.programs.starts()) == before + 1


def test_an_agent_killed_after_it_has_cancelled_cancels_once(hub: Hub, site: DialingAgent):
    site.kill()
    site.start(crash="edge.obeyed")
    job = site.submit("gate")
    site.wait_job(job, State.RUNNING)
    try:
        with hub.change() as project:
            project.cancel([job])
        assert site.process.wait(90) == -9, site.told()
    finally:
        site.kill()
        site.start()
    assert site.wait_over(job) == [State.CANCELLED]


@pytest.mark.crash_points
@pytest.mark.parametrize("point", LINK)
def test_killed_while_the_key_is_renewed_the_agent_comes_back(
    hub: Hub, site: DialingAgent, point: str
):
    """The first enrolment is like it: a token in the place of the old key."""
    site.kill()
    file = site.root / ".pilotage" / keys.FILE
    old = json.loads(file.read_bytes())
    file.write_text(json.dumps({**old, "since": 0.0}))
    try:
        if point == "link.admitted":
            hub.kill()
            hub.start(point)
            site.start()
            assert hub.process.wait(90) == -9, site.told()
            site.kill()
        else:
            site.dies(point)
    finally:
        hub.kill()
        hub.start()
        site.start()
    assert site.wait_over(site.submit("count")) == [State.DONE]
    now = json.loads(file.read_bytes())
    assert now["key"] != old["key"]
    assert "next" not in now


def test_a_revoked_agent_is_cut_off_and_another_token_lets_it_in_again(
    hub: Hub, site: DialingAgent
):
    mine = "SELECT id FROM token WHERE site = ? AND revoked IS NULL"
    ((number,),) = hub.query(mine, site.site)
    site.revoke(number)
    site.wait(lambda: "wrong or revoked" in site.command("agent", "status"))
    assert "no hub" in site.command("agent", "status")
    job = site.submit("count")
    assert site.look(job).state is not State.DONE
    site.enrol()
    assert site.wait_over(job) == [State.DONE]
