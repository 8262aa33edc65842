"""Workflows as people write them: files, Python, and definitions of the original."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilotage.base import errors
from pilotage.bus import balsam
from pilotage.bus.model import Chain
from pilotage.edge.handoff import Take
from pilotage.flow import build, records
from pilotage.flow.model import Flow, IntRange
from pilotage.flow.read import from_chain, from_dict, read
from pilotage.hub.project import Project
from pilotage.job.model import Limit

ATLAS = """\
name = "atlas"
to = "sftp://dtn.example.org/out/"
retries = 10
required = ["seed"]

[params]
events = 1000

[outputs]
picture = "histogram/h.svg"

[notify]
reply = "me.flows"

[step.generate]
site = "farm"
application = "generate"
parameters = { events = "{events}", seed = "{params.seed}" }
outputs = ["events.dat"]
result = "out.json"

[step.simulate]
sites = ["big", "small"]
application = "simulate"
each = "{generate.result.chunks}"
inputs = ["generate/events.dat", "https://x.org/a.b", { from = "generate/out.json", as = "o" }]
nodes = [2, 8]
time = ["10m", "1h"]
work = "16h"
memory = "2G"
outputs = ["sim/"]
on_failure = "other_site"

[step.histogram]
run = ["python3", "h.py", "{simulate.result}"]
when = "generate.result.count > 3"
inputs = "simulate/sim/a.dat"
outputs = ["h.svg"]

[step.tell]
needs = ["histogram"]
parameters = { who = "{seed}" }

[step.tell.flow]
required = ["who"]

[step.tell.flow.step.one]
site = "farm"
application = "mail"
parameters = { to = "{who}" }
"""


def atlas(source: str = ATLAS, **keys: Any) -> Flow:
    return read(source, **{"params": {"seed": 7}, "file": "w.toml", **keys})


def test_everything_is_read_and_what_is_named_is_needed() -> None:
    flow = atlas(params={"seed": 7, "events": "20"})
    assert flow.params == {"seed": 7, "events": 20}
    assert {name: step.needs for name, step in flow.steps.items()} == {
        "generate": (),
        "simulate": ("generate",),
        "histogram": ("simulate", "generate"),
        "tell": ("histogram",),
    }
    one = flow.steps["simulate"]
    assert (one.nodes, one.time, one.work) == (IntRange(2, 8), IntRange(600, 3600), 57600)
    assert (one.memory, one.sites) == (2_000_000_000, ("big", "small"))
    assert one.inputs == (
        Take(step="generate", output="events.dat"),
        Take(url="https://x.org/a.b"),
        Take(step="generate", output="out.json", path="o"),
    )
    assert flow.steps["generate"].outputs == ("events.dat", "out.json")
    assert flow.steps["histogram"].recipe == {
        "kind": "command",
        "argv": ["python3", "h.py", "{simulate.result}"],
    }
    assert flow.steps["tell"].flow is not None
    assert flow.steps["tell"].flow.name == "tell"


def test_json_has_the_same_keys() -> None:
    body = json.dumps(tomllib.loads(ATLAS))
    assert read(body, form="json", params={"seed": 7}) == atlas()


@pytest.mark.parametrize(
    "old, new, place, words, hint",
    [
        ("on_failure", "on_falure", "w.toml:32: step.simulate.on_falure", "no key", "on_failure"),
        ("[2, 8]", "[8, 2]", "w.toml:27: step.simulate.nodes", "no range", "least"),
        ("[2, 8]", '"many"', "w.toml:27: step.simulate.nodes", "this is text", ""),
        ('"16h"', '"16 parsecs"', "w.toml:29: step.simulate.work", "cannot read", "1h 30m"),
        ("generate/ev", "generate/av", "w.toml:26: step.simulate.inputs", "no output", "events"),
        ("{events}", "{evnts}", "w.toml:18: step.generate.par", "stands for", "`events`"),
        ("{params.seed}", "{params.sead}", "w.toml:18: step.generate.par", "no parameter", "seed"),
        ("{params.seed}", "{item}", "w.toml:18: step.generate.par", "without `each`", "list"),
        ("{params.seed}", "{seed", "w.toml:18: step.generate.par", "a lone `{`", "{{"),
        ('when = "', 'when = "> ', "w.toml:36: step.histogram.when", "a value is wanted", ""),
        ('"other_site"', '"othersite"', "w.toml:32: step.simulate.on_fail", "cannot be", "other_s"),
        ('needs = ["hist', 'needs = ["hits', "w.toml:41: step.tell.needs", "no step", "histogram"),
        ("[step.generate]", "[steps.generate]", "w.toml:15: steps", "no key", "`step`"),
        ("reply =", "replay =", "w.toml:13: notify.replay", "no key", "reply"),
        ('"me.flows"', '"me flows"', "w.toml:13: notify.reply", "no routing key", "status.me"),
        ("reply =", 'email = "a@b, c@d"\nreply =', "w.toml:13: notify.email", "no e-mail", "one"),
        ("retries = 10", "retries = ten", "w.toml:3: ", "not TOML", "quotes"),
        ('["who"]', '["who", "y"]', "step.tell.flow", "`y` has no value", "parameters"),
        ('application = "mail"', "", "step.tell.flow.step.one", "here it is nothing", "one of"),
        ('"histogram/h.svg"', '"hist"', "w.toml:10: outputs.picture", "no step `hist`", "histo"),
        ('site = "farm"\n', 'site = "f"\nsites = ["g"]\n', "step.generate.sites", "already", "two"),
        ("events = 1000", "item = 1", "w.toml:7: params.item", "is reserved", "parameter"),
        ("nodes = [", 'requirements = "a >"\nnodes = [', "w.toml:27: step.simulate", "wanted", ""),
        ("[step.generate]", "[step.item]", "step.", "cannot name a step", "letters"),
        ('name = "atlas"', 'name = "a\\u0007"', "w.toml:1: name", "cannot name", "printable"),
        ("retries = 10", "retries = -1", "w.toml:3: retries", "too small", "0 means none"),
        ("example.org/out", "example.org/{evnts}", "w.toml:2: to", "stands for", "`events`"),
        ("dtn.example.org/out", "/out", "w.toml:2: to", "no host", ""),
        ('"{generate.result.chunks}"', '"chunks"', "step.simulate.each", "no list", "STEP.result"),
        ('when = "', 'when = "item > 3 and ', "step.histogram.when", "not known there", "the list"),
        ('"histogram/h.svg"', '"hist/h.svg"', "outputs.picture", "no step `hist`", "histogram"),
        ("generate/events", "generate/../events", "step.simulate.inputs", "has no output", ""),
    ],
)  # fmt: skip
def test_mistakes_are_named_by_their_place_with_a_hint(
    old: str, new: str, place: str, words: str, hint: str
) -> None:
    assert old in ATLAS
    with pytest.raises(errors.BadFlow) as caught:
        atlas(ATLAS.replace(old, new, 1))
    assert place in str(caught.value)
    assert words in caught.value.message
    assert hint in caught.value.hint


LIMITED = """\
name = "f"
params = { camera = "left" }
[step.many]
each = [1, 2, 3]
LIMIT
run = ["true"]
"""


@pytest.mark.parametrize(
    "written, found",
    [
        ("limit = 'camera'", Limit("camera")),
        ("limit = { key = '{camera}-{item}', most = 2 }", Limit("{camera}-{item}", 2)),
    ],
)
def test_a_step_has_a_limit_as_a_rule_has(written: str, found: Limit) -> None:
    source = LIMITED.replace("LIMIT", written)
    flow = read(source)
    assert flow.steps["many"].limit == found
    assert read(json.dumps(tomllib.loads(source)), form="json") == flow
    made = build.Flow("f", params={"camera": "left"})
    limit = tomllib.loads(written)["limit"]
    made.step("many", each=[1, 2, 3], limit=limit, run=["true"])
    assert made.definition() == flow


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("most = 2", "most = 0", "too small"),
        ("most = 2", "mots = 2", "no key 'mots'"),
        ("{camera}", "{camra}", "stands for nothing"),
        ('run = ["true"]', "flow = { step.a.run = ['true'] }", "is not a job"),
    ],
)
def test_a_limit_that_cannot_be_is_told_with_its_line(old: str, new: str, words: str) -> None:
    source = LIMITED.replace("LIMIT", "limit = { key = '{camera}', most = 2 }").replace(old, new)
    with pytest.raises(errors.BadRule, match=words) as caught:
        read(source, file="w.toml")
    assert "w.toml:5: step.many.limit" in str(caught.value)


def test_a_circle_is_told_with_its_path() -> None:
    with pytest.raises(errors.BadFlow, match="`generate` → `simulate` → `histogram` → `generate`"):
        atlas(ATLAS.replace("[step.generate]\n", '[step.generate]\nneeds = ["histogram"]\n'))


@pytest.mark.parametrize(
    "given, words",
    [
        ({}, "`seed` has no value"),
        ({"sead": 1}, "no parameter `sead`"),
        ({"seed": 1, "events": "many"}, "cannot be 'many'"),
        ({"seed": 1, "events": "true"}, "cannot be 'true'"),
    ],
)
def test_parameters_are_checked(given: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.BadFlow, match=words):
        atlas(params=given)


def test_what_comes_from_elsewhere_runs_no_program_of_its_own() -> None:
    with pytest.raises(errors.BadFlow, match="applications alone"):
        atlas(recipes=False)
    with pytest.raises(errors.BadFlow, match="no file here"):
        atlas(ATLAS.replace('run = ["python3", "h.py", "{simulate.result}"]', 'python = "x.py"'))


def test_files_are_found_beside_the_workflow(tmp_path: Path) -> None:
    inner = '[step.one]\nsite = "x"\napplication = "y"\n'
    (tmp_path / "inner.toml").write_text(inner, encoding="utf-8")
    (tmp_path / "code.py").write_text("def go(): ...\n", encoding="utf-8")
    (tmp_path / "itself.toml").write_text('[step.again]\nflow = "itself.toml"\n', encoding="utf-8")
    top = 'name = "f"\n[step.a]\nflow = "inner.toml"\n[step.b]\npython = "code.py"\n'
    flow = read(top + 'function = "go"\n', base=tmp_path)
    assert flow.steps["a"].flow is not None
    assert flow.steps["b"].recipe["file"] == str(tmp_path / "code.py")
    with pytest.raises(errors.BadFlow, match="no function 'stop'"):
        read(top + 'function = "stop"\n', base=tmp_path)
    with pytest.raises(errors.BadFlow, match=r"circle: `itself.toml` → `itself.toml`"):
        read('name = "f"\n[step.a]\nflow = "itself.toml"\n', base=tmp_path)
    back = tmp_path / "below" / "back.toml"
    back.parent.mkdir()
    back.write_text('[step.a]\nflow = "../top.toml"\n', encoding="utf-8")
    with pytest.raises(errors.BadFlow, match=r"circle: `top.toml` → `back.toml` → `top.toml`"):
        read('name = "f"\n[step.a]\nflow = "below/back.toml"', base=tmp_path, file="top.toml")
    with pytest.raises(errors.BadFlow, match="cannot be read"):
        read('name = "f"\n[step.a]\nflow = "none.toml"\n', base=tmp_path)
    (tmp_path / "inner.toml").write_text(inner.replace("site", "sits"), encoding="utf-8")
    with pytest.raises(errors.BadFlow) as caught:
        read(top, base=tmp_path, file="top.toml")
    assert (caught.value.file, caught.value.line) == (str(tmp_path / "inner.toml"), 2)


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../b", "a\nb"])
@pytest.mark.parametrize("key", ["outputs", "result", "inputs"])
def test_names_of_files_stay_below_the_folder_of_a_task(key: str, name: str) -> None:
    value = {
        "outputs": [name],
        "result": name,
        "inputs": [{"from": "https://h.example/x", "as": name}],
    }
    step = {"site": "x", "application": "y", key: value[key]}
    with pytest.raises(errors.BadFlow, match="no name of a file") as caught:
        from_dict({"name": "f", "step": {"a": step}})
    assert caught.value.at == f"step.a.{'outputs' if key == 'result' else key}"


def test_what_is_too_much_is_refused_before_it_is_read() -> None:
    with pytest.raises(errors.BadFlow, match="bytes; the limit is"):
        read(b" " * (32 << 20) + b"{}", form="json")
    step = {"site": "x", "application": "y"}
    with pytest.raises(errors.BadFlow, match="has 100001 items; the limit is 100000"):
        from_dict({"name": "f", "step": {"a": {**step, "each": [0] * 100_001}}})


def test_files_that_name_each_other_very_often_are_counted(tmp_path: Path) -> None:
    for number in range(7):
        steps = "".join(f'[step.s{one}]\nflow = "f{number + 1}.toml"\n' for one in range(20))
        (tmp_path / f"f{number}.toml").write_text(steps, encoding="utf-8")
    (tmp_path / "f7.toml").write_text('[step.a]\nsite = "x"\napplication = "y"\n', encoding="utf-8")
    with pytest.raises(errors.BadFlow, match="read more than 1000 times"):
        read('name = "f"\n[step.a]\nflow = "f0.toml"\n', base=tmp_path)


def test_a_key_that_is_there_twice_is_told() -> None:
    one = '{"site": "x", "application": "y"}'
    with pytest.raises(errors.BadFlow, match="the key 'a' is there twice"):
        read(f'{{"name": "f", "step": {{"a": {one}, "a": {one}}}}}', form="json")
    with pytest.raises(errors.BadFlow, match="not JSON") as caught:
        read('{"name": "f",\n "step": }', form="json")
    assert caught.value.line == 2


@pytest.mark.parametrize("source", [b"\xff", b"[]", b'"x"', b"{", b'{"step": {"a": 3}}', b"{}"])
def test_what_is_no_workflow_is_refused(source: bytes) -> None:
    with pytest.raises(errors.BadFlow):
        read(source, form="json")


def test_python_writes_the_same(tmp_path: Path) -> None:
    inner = build.Flow("inner", required=["n"])
    inner.step("one", site="x", application="y", parameters={"n": "{n}"})
    flow = build.Flow("f", params={"events": 5})
    first = flow.step("first", site="x", application="a", outputs=["e.dat"], result="r.json")
    many = flow.step(
        "many", site="x", application="b", each=first.result("list"), inputs=[first["e.dat"]]
    )
    flow.step("last", needs=[many], flow=inner, parameters={"n": first.result("n")})
    flow.step("tell", site="x", application="c", parameters={"how": many.state()})
    flow.output("data", first["e.dat"])
    found = flow.definition({"events": 6}, base=tmp_path)
    assert found == from_dict(json.loads(json.dumps(flow.to_dict())), params={"events": 6})
    assert found.steps["last"].needs == ("many", "first")
    assert found.steps["tell"].needs == ("many",)
    assert found.outputs == {"data": "first/e.dat"}
    with pytest.raises(errors.BadFlow, match="already"):
        flow.step("first")
    flow.step("wrong", sight="x")
    with pytest.raises(errors.BadFlow, match="no key 'sight'"):
        flow.definition()


def test_python_starts_it_in_a_project(tmp_path: Path) -> None:
    for folder in (".pilotage", "sites"):
        (tmp_path / folder).mkdir()
    (tmp_path / "sites" / "x.toml").write_text('batch = "local"\n')
    flow = build.Flow("f", params={"n": 1})
    flow.step("one", site="x", application="y", parameters={"n": "{n}"})
    with Project(tmp_path) as project:
        number = flow.submit(project, {"n": 2}, key="mine")
        assert flow.submit(project, {"n": 2}, key="mine") == number
        assert records.definition(project.db, number).params == {"n": 2}


ARGO = {
    "name": "alpgen", "job_id": 7, "email": "me@example.org", "user_id": "me",
    "input_url": "gsiftp://h/in", "output_url": "gsiftp://h/out", "job_status_routing_key": "r.k",
    "subjobs": [
        {"site": "farm", "application": "alpgen", "name": "warm up", "config_file": "a {1}\nb"},
        {"site": "big", "application": "sherpa", "num_nodes": 16, "wall_time_minutes": 30,
         "processes_per_node": 8, "input_url": "gsiftp://h/more", "output_url": "gsiftp://h/no"},
    ],
}  # fmt: skip


def test_a_legacy_definition_is_a_chain_whose_data_flows() -> None:
    message = balsam.read_message(json.dumps(ARGO).encode()).message
    assert isinstance(message, Chain)
    flow = from_chain(message)
    assert list(flow.steps) == ["1-warm-up", "2-sherpa"]
    first, second = flow.steps.values()
    assert first.inputs == (Take(url="gsiftp://h/in/"),)
    assert (first.config, first.outputs) == ("a {{1}}\nb", ("",))
    assert second.needs == ("1-warm-up",)
    assert second.inputs == (Take(step="1-warm-up"), Take(url="gsiftp://h/more/"))
    assert (second.nodes, second.time, second.tasks) == (IntRange(16, 16), IntRange(1800, 1800), 8)
    assert (flow.to, flow.outputs) == ("gsiftp://h/out/", {"last": "2-sherpa"})
    assert msgspec.structs.astuple(flow.notify) == ("r.k", "argo", 7, "", "me@example.org")


_DOCS = Path(__file__).parents[3] / "docs"
_FENCE = re.compile(r"^```toml flow\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHOWN = [
    pytest.param(text, id=f"{page.stem}-{place}")
    for page in sorted(_DOCS.rglob("*.md"))
    for place, text in enumerate(_FENCE.findall(page.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize("source", _SHOWN)
def test_a_workflow_that_is_shown_loads(source: str) -> None:
    needed = tomllib.loads(source).get("required", [])
    read(source, base=_DOCS, params=dict.fromkeys(needed, 1))


def test_nothing_is_read_from_a_step_that_leaves_nothing() -> None:
    step = {"site": "x", "application": "y"}
    with pytest.raises(errors.BadFlow, match=r"`a` has no output `out.dat`") as caught:
        from_dict({"name": "f", "step": {"a": step, "b": {**step, "inputs": ["a/out.dat"]}}})
    assert caught.value.hint == "name it in its `outputs`"


def test_a_flow_within_reads_nothing_from_outside_of_it() -> None:
    inner = {"name": "i", "step": {"x": {"site": "s", "application": "y"}}}
    first = {"site": "s", "application": "y", "outputs": ["d"]}
    for source in ("a/d", "https://example.org/d"):
        within = {"flow": inner, "inputs": [source]}
        with pytest.raises(errors.BadFlow, match=r"step.b.inputs: .* outside") as caught:
            from_dict({"name": "f", "step": {"a": first, "b": within}})
        assert "`parameters`" in caught.value.hint
