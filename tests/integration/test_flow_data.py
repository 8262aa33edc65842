"""Data of workflows goes from site to site, and what is lost on the way is had again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.data.transfer.model import MANIFEST
from pilotage.edge.handoff import Take
from pilotage.flow.model import Flow, Step
from testbed.rabbit import Rabbit
from tests.rigs.broker.edge_agent import Edge
from tests.rigs.cluster.web import Web, serving
from tests.rigs.project.flow_hub import Hub, served

#: What the applications of both sites do in the folder of a job.
DOES = {
    "make": """mkdir -p out; cat seed > out/seed 2>/dev/null
echo "made $1" > out/made; echo '{"n": 2, "chunks": [1, 2, 3]}' > r.json""",
    "part": 'echo "part $1" > part; cat made > seen 2>/dev/null; echo $((10 * $1)) > n.json',
    "merge": "mkdir -p all; cat $(find . -name part | sort) > all/parts; cat out/made > all/made",
    "read": "cat out/made > got; test -s got",
}
WORD = {"kind": "text", "pattern": "[A-Za-z0-9._-]+", "default": "x"}
NUMBER = {"kind": "integer", "maximum": 1000}


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with serving(tmp_path_factory.mktemp("web")) as one:
        yield one


def equip(edge: Edge, *webs: Web, roots: tuple[str, ...] = ()) -> None:
    """Have applications at a site that may use web servers, and folders of its own."""
    # What was damaged at the server must not be had from what an earlier job brought.
    edge.change({"limits": {"cache": "0"}})
    staging: dict[str, Any] = {
        "protocols": ["http", "file"] if roots else ["http"], "private": ["127.0.0.0/8"],
        "hosts": [f"127.0.0.1:{one.port}" for one in webs],
    }  # fmt: skip
    if roots:
        staging["roots"] = list(roots)
    for name, does in DOES.items():
        label = NUMBER if name == "part" else WORD
        edge.programs.add(name, does, argv=["{label}"], parameter={"label": label}, staging=staging)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, rabbit: Rabbit, web: Web) -> Iterator[Edge]:
    with served(tmp_path_factory.mktemp("flows"), rabbit, lambda one: equip(one, web)) as one:
        yield one


@pytest.fixture(scope="module")
def second(
    first: Edge, tmp_path_factory: pytest.TempPathFactory, rabbit: Rabbit, web: Web
) -> Iterator[Edge]:
    folder = tmp_path_factory.mktemp("flows")
    with served(folder, rabbit, lambda one: equip(one, web), beside=first) as one:
        yield one


@pytest.fixture
def hub(first: Edge, web: Web, tmp_path: Path) -> Iterator[Hub]:
    made = Hub(tmp_path / "hub", first, settings=settings(web))
    yield made
    made.kill()


def settings(web: Web, **more: Any) -> dict[str, Any]:
    return {"flows": {"data": f"{web.url}/flows", **more}}


def at(edge: Edge, application: str, **more: Any) -> Step:
    return Step(sites=(edge.site,), application=application, **more)


def here(script: str, **more: Any) -> Step:
    return Step(recipe={"kind": "command", "argv": ["sh", "-c", script]}, **more)


def folder(web: Web, place: str) -> Path:
    """Return the folder of an attempt, where it lies."""
    if place.startswith("file://"):
        return Path(place.removeprefix("file://"))
    return web.root / place.removeprefix(f"{web.url}/")


def made(hub: Hub, web: Web, flow: int, step: str) -> Path:
    return folder(web, hub.attempts(flow, step)[-1].place)


# -- all goes well ---------------------------------------------------------------------------------


def test_data_goes_from_site_to_hub_to_site_and_to_where_it_was_asked_for(
    hub: Hub, first: Edge, second: Edge, web: Web
):
    (hub.root / "seeds").mkdir()
    (hub.root / "seeds" / "seed").write_text("from the project")
    flow = Flow(
        name="atlas", to="results/{flow}",
        outputs={"sum": "last", "made": "make/out/made"},
        steps={
            "make": at(
                first, "make", parameters={"label": "one"}, outputs=("out/",), result="r.json",
                inputs=(Take(url="seeds/seed"),),
            ),
            "middle": here(
                "cat in/out/made in/out/seed > both; echo '{{\"big\": true}}' > r.json",
                inputs=(Take(step="make", path="in"),), outputs=("both",), result="r.json",
            ),
            "last": at(
                second, "make", when="middle.result.big",
                inputs=(Take(step="middle", output="both", path="seed"),), outputs=("out/seed",),
            ),
        },
    )  # fmt: skip
    with hub.up():
        number = hub.submit(flow)
        assert hub.wait_over(number) == ["done"], hub.told()
    whole = "made one\nfrom the project"
    assert (made(hub, web, number, "last") / "out" / "seed").read_text() == whole
    results = hub.root / "results" / str(number)
    assert (results / "sum" / "out" / "seed").read_text() == whole
    assert (results / "made" / "out" / "made").read_text() == "made one\n"
    assert (results / MANIFEST).exists()
    make, middle, last = (hub.attempts(number, name)[-1] for name in ("make", "middle", "last"))
    assert (make.files, make.read) == (3, len("from the project"))
    assert middle.read == make.bytes == sum(
        one.stat().st_size for one in folder(web, make.place).rglob("*")
        if one.is_file() and one.name != MANIFEST
    )  # fmt: skip
    assert last.read == len(whole)
    rows = hub.query("SELECT name, size FROM flow_file WHERE task = ? ORDER BY name", make.task)
    assert [name for name, _ in rows] == ["out/made", "out/seed", "r.json"]
    (result,) = hub.query("SELECT result FROM flow_task WHERE id = ?", make.task)
    assert json.loads(result[0]) == {"n": 2, "chunks": [1, 2, 3]}


def test_many_tasks_hand_on_item_by_item_and_one_reads_what_all_left(
    first: Edge, second: Edge, web: Web, tmp_path: Path
):
    """The hub is where the folder of the transfer server is, and needs no server."""
    told = settings(web, here=f"file://{web.root}/flows")
    hub = Hub(tmp_path / "hub", first, settings=told)
    flow = Flow(
        name="fan",
        steps={
            "make": at(first, "make", outputs=("out/",), result="r.json"),
            "part": at(
                second, "part", each="{make.result.chunks}", parameters={"label": "{item}"},
                inputs=(Take(step="make", output="out/made", path="made"),),
                outputs=("part", "seen"), result="n.json",
            ),
            "next": at(
                first, "merge", each="{part.result}", parameters={"label": "n{item}"},
                inputs=(Take(step="part", path="own"), Take(step="make")), outputs=("all/",),
            ),
            "own": here(
                "cat part/*/part > got", inputs=(Take(step="part", output="part"),),
                outputs=("got",),
            ),
            "merge": at(
                second, "merge",
                inputs=(Take(step="part", path="parts"), Take(step="make"), Take(step="own")),
                outputs=("all/",),
            ),
        },
    )  # fmt: skip
    with hub.up():
        number = hub.submit(flow)
        assert hub.wait_over(number) == ["done"], hub.told()
    assert (made(hub, web, number, "own") / "got").read_text() == "part 1\npart 2\npart 3\n"
    assert hub.attempts(number, "own")[0].place.startswith(web.url)
    merged = made(hub, web, number, "merge") / "all" / "parts"
    assert merged.read_text() == "part 1\npart 2\npart 3\n"
    single = [folder(web, one.place) / "all" / "parts" for one in hub.attempts(number, "next")]
    assert [one.read_text() for one in single] == ["part 1\n", "part 2\n", "part 3\n"]


def test_data_goes_straight_from_site_to_site_where_that_is_possible(
    first: Edge, second: Edge, web: Web, tmp_path: Path
):
    """The first site keeps its data itself, and serves it to the second."""
    own = tmp_path / "own"
    own.mkdir()
    with serving(own) as server:
        equip(first, web, server, roots=(str(own),))
        equip(second, web, server)
        site = {"data": f"file://{own}", "read": server.url, "readers": [second.site]}
        told = settings(web, site={first.site: site})
        hub = Hub(tmp_path / "hub", first, settings=told)
        flow = Flow(
            name="direct",
            steps={
                "make": at(first, "make", outputs=("out/",), result="r.json"),
                "same": at(first, "read", inputs=(Take(step="make"),), outputs=("got",)),
                "read": at(second, "read", inputs=(Take(step="make"),), outputs=("got",)),
                "back": at(first, "merge", inputs=(Take(step="read"), Take(step="make"))),
            },
        )  # fmt: skip
        with hub.up():
            number = hub.submit(flow)
            assert hub.wait_over(number) == ["done"], hub.told()
        places = {name: hub.attempts(number, name)[-1].place for name in ("make", "same", "read")}
        assert places["make"].startswith(server.url)
        assert places["same"].startswith(server.url)
        assert places["read"].startswith(f"{web.url}/flows")
        # The same site reads it without the server in between: each file left there once.
        assert server.calls["PUT"] == 0


# -- what is lost on the way -----------------------------------------------------------------------


Damage = Callable[[Path], None]


def tampered(place: Path) -> None:
    whole = (place / "out" / "made").read_bytes()
    (place / "out" / "made").write_bytes(whole.replace(b"made", b"maid"))


def removed(place: Path) -> None:
    (place / "out" / "made").unlink()


def truncated(place: Path) -> None:
    with (place / MANIFEST).open("r+b") as file:
        file.truncate(100)


#: Who makes data, who reads it, and what becomes of it in between.
DAMAGE: tuple[tuple[str, str, Damage], ...] = (
    ("site", "site", tampered), ("site", "site", removed), ("site", "site", truncated),
    ("site", "hub", tampered), ("hub", "site", tampered),
)  # fmt: skip


def held(maker: Step, waiter: Edge, reader: Step) -> Flow:
    """Return a flow whose last step reads only after a gate is open."""
    waits = at(waiter, "gate", needs=("make",))
    return Flow(name="held", steps={"make": maker, "wait": waits, "read": reader})


@pytest.mark.slow
def test_what_was_damaged_at_the_server_is_sent_again(
    hub: Hub, first: Edge, second: Edge, web: Web
):
    data: dict[str, Any] = {"needs": ("wait",), "inputs": (Take(step="make"),), "outputs": ("got",)}
    readers = {"site": at(second, "read", **data), "hub": here("cp out/made got", **data)}
    makers = {
        "site": at(first, "make", outputs=("out/",), result="r.json"),
        "hub": here("mkdir out; echo made x > out/made", outputs=("out/",)),
    }
    second.programs.gate.unlink(missing_ok=True)
    with hub.up():
        flows = [
            hub.submit(held(makers[makes], second, readers[reads])) for makes, reads, _ in DAMAGE
        ]
        for one in flows:
            hub.wait_state(one, "make", "done")
            hub.wait_state(one, "wait", "submitted", "running")
        for one, (_, _, damage) in zip(flows, DAMAGE, strict=True):
            damage(made(hub, web, one, "make"))
        second.programs.gate.touch()
        assert hub.wait_over(*flows) == ["done"] * len(flows), hub.told()
    for one in flows:
        # It was made once, and read as it was made.
        assert len(hub.attempts(one, "make")) == 1
        assert (made(hub, web, one, "read") / "got").read_text() == "made x\n"
    asked = sum(makes == "site" for makes, _, _ in DAMAGE)
    assert hub.query("SELECT count(*) FROM flow_resend WHERE told IS NOT NULL") == [(asked,)]


@pytest.mark.slow
def test_what_cannot_be_sent_again_is_made_again_elsewhere(
    hub: Hub, first: Edge, second: Edge, web: Web
):
    reader = at(second, "read", needs=("wait",), inputs=(Take(step="make"),), outputs=("got",))
    second.programs.gate.unlink(missing_ok=True)
    with hub.up():
        number = hub.submit(held(at(first, "make", outputs=("out/",)), second, reader))
        hub.wait_state(number, "wait", "running")
        (old,) = hub.attempts(number, "make")
        tampered(folder(web, old.place))
        ((mine,),) = hub.query("SELECT value FROM cursor WHERE source = 'flows hub'")
        known = "SELECT job FROM edge_job WHERE token = ?"
        ((job,),) = first.query(known, f"{mine}.job.{old.job}.1")
        (there,) = first.root.rglob(f"edge/{job}.1")
        shutil.rmtree(there)
        second.programs.gate.touch()
        assert hub.wait_over(number) == ["done"], hub.told()
    before, after = hub.attempts(number, "make")
    assert before.place != after.place
    assert (made(hub, web, number, "read") / "got").read_text() == "made x\n"
    assert "maid" in (folder(web, before.place) / "out" / "made").read_text()


@pytest.mark.slow
def test_what_was_damaged_before_anybody_looked_is_sent_again_and_each_end_counts_once(
    hub: Hub, first: Edge, second: Edge, web: Web
):
    flow = Flow(
        name="early",
        steps={
            "make": at(first, "make", outputs=("out/",), result="r.json"),
            "read": at(second, "read", inputs=(Take(step="make"),), outputs=("got",)),
        },
    )
    number = hub.submit(flow)
    hub.dies("flow.checked")
    (attempt,) = hub.attempts(number, "make")
    assert (attempt.state, attempt.ended) == ("done", None)
    truncated(folder(web, attempt.place))
    hub.dies("flow.checked")
    with hub.up():
        assert hub.wait_over(number) == ["done"], hub.told()
    assert [len(hub.attempts(number, name)) for name in ("make", "read")] == [1, 1]
    assert len(hub.query("SELECT 1 FROM flow_file WHERE task = ?", attempt.task)) == 3


@pytest.mark.slow
def test_a_hub_that_is_killed_again_and_again_hands_all_on_once(
    hub: Hub, first: Edge, second: Edge, web: Web
):
    """Each step leaves all of its folder, as those of a legacy chain do."""
    (hub.root / "seed").write_text("seed")
    whole: dict[str, Any] = {"outputs": ("",)}
    flow = Flow(
        name="killed",
        to="results",
        steps={
            "make": at(first, "make", inputs=(Take(url="seed"),), **whole),
            "own": here("cat out/seed >> out/made", inputs=(Take(step="make"),), **whole),
            "read": at(second, "read", inputs=(Take(step="own"),), **whole),
        },
    )
    number = hub.submit(flow)
    begun = len(first.programs.starts()) + len(second.programs.starts())
    for point in ("flow.attempted", "flow.checked", "flow.ended", "flow.news", "remote.sent"):
        hub.dies(point)
    with hub.up():
        assert hub.wait_over(number) == ["done"], hub.told()
    assert len(first.programs.starts()) + len(second.programs.starts()) == begun + 2
    assert [one.number for one in hub.attempts(number)] == [1, 1, 1]
    assert (made(hub, web, number, "read") / "got").read_text() == "made x\nseed"
    assert (hub.root / "results" / "got").read_text() == "made x\nseed"
    assert (hub.root / "results" / "seed").read_text() == "seed"


def test_a_result_that_is_none_is_the_failure_of_its_step(hub: Hub, first: Edge):
    bad = {
        "no json": "echo '{{' > r.json", "too long": "seq 99999 > r.json", "none": "true",
        "no number": "echo NaN > r.json",
    }  # fmt: skip
    steps = {f"s{at}": here(does, result="r.json") for at, does in enumerate(bad.values())}
    with hub.up():
        number = hub.submit(Flow(name="bad", steps=steps))
        assert hub.wait_over(number) == ["failed"]
    said = " ".join(hub.reasons(number).values())
    assert all(one in said for one in ("not JSON", "the limit is", "no output", "NaN")), said


# -- what is over ----------------------------------------------------------------------------------


def test_data_of_what_ended_is_removed_and_that_of_what_goes_on_stays(
    first: Edge, second: Edge, web: Web, tmp_path: Path
):
    hub = Hub(tmp_path / "hub", first, settings=settings(web, keep="1s"))
    (hub.root / "seed").write_text("x")
    second.programs.gate.unlink(missing_ok=True)
    short = Flow(
        name="short",
        steps={
            "make": at(first, "make", inputs=(Take(url="seed"),), outputs=("out/",)),
            "own": here("cp out/made .", inputs=(Take(step="make"),), outputs=("made",)),
        },
    )
    reader = at(second, "read", needs=("wait",), inputs=(Take(step="make"),), outputs=("got",))
    with hub.up():
        live = hub.submit(held(at(first, "make", outputs=("out/",)), second, reader))
        hub.wait_state(live, "wait", "running")
        over = hub.submit(short)
        assert hub.wait_over(over) == ["done"], hub.told()
        tops = {made(hub, web, over, name).parents[2] for name in ("make", "own")}
        hub.wait(lambda: hub.flow(over).cleared)
        hub.wait(lambda: hub.query("SELECT 1 FROM flow_clearing") == [])
        assert not any(top.exists() for top in tops)
        assert not list((hub.root / ".pilotage" / "flows" / "work").glob(f"{over}-*"))
        assert (made(hub, web, live, "make") / "out" / "made").exists()
        second.programs.gate.touch()
        assert hub.wait_over(live) == ["done"], hub.told()


def test_flows_within_hand_on_here_without_any_server(tmp_path: Path):
    copy = here("cat a.txt > b.txt", inputs=(Take(step="a"),), outputs=("b.txt",))
    inner = Flow(
        name="inner",
        steps={"a": here("echo inside > a.txt", outputs=("a.txt",)), "b": copy},
        outputs={"b": "b/b.txt"},
    )
    flow = Flow(
        name="outer",
        steps={
            "within": Step(flow=inner, each=[1, 2]),
            "last": here(
                "find . -name b.txt | xargs cat > all.txt", inputs=(Take(step="within"),),
                outputs=("all.txt",),
            ),
        },
        outputs={"all": "last/all.txt"}, to="found",
    )  # fmt: skip
    hub = Hub(tmp_path / "hub")
    with hub.up():
        assert hub.wait_over(hub.submit(flow)) == ["done"], hub.told()
    assert (tmp_path / "hub" / "found" / "all.txt").read_text() == "inside\ninside\n"


def test_a_step_without_data_leaves_no_trace_of_any(hub: Hub, first: Edge):
    with hub.up():
        number = hub.submit(Flow(name="plain", steps={"a": here("true"), "b": at(first, "count")}))
        assert hub.wait_over(number) == ["done"], hub.told()
    assert not (hub.root / ".pilotage" / "flows").exists()
    assert {one.place for one in hub.attempts(number)} == {""}
