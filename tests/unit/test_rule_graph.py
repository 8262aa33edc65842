"""The emergent workflow, and pictures of it."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.rule import book, component, glob, graph, layers, layout, overlap

TEXT = """
[rule.clean]
files = "raw/{scan}.csv"
sweep = { level = [1, 2] }
run = ["clean"]
outputs = { c = "clean/{scan}.{level}.csv" }

[rule.fit]
files = "clean/*.csv"
run = ["fit"]
outputs = { m = "{base}/models/{stem}.json", p = "plots/{name}.png" }

[rule.refine]
files = "models/**/*.json"
exclude = "*.final.json"
run = ["refine"]
outputs = { m = "{dir}/{stem}.json", f = "models/{stem}.final.json" }

[rule.again]
regex = 'models/.*\\.final\\.json'
run = ["again"]
optional_outputs = { r = "raw/again.csv" }

[rule.night]
cron = "0 3 * * *"
run = ["sync"]

[rule.mend]
job = "fit"
states = ["failed"]
run = ["mend"]

[rule.table]
files = "raw"
events = ["dir.modified"]
run = ["x"]

[rule.gone]
files = "clean/*.csv"
events = ["deleted"]
run = ["x"]
"""


@pytest.fixture(scope="module")
def found():
    return graph.graph(book.load_text("b.toml", TEXT, "/p", "/").rules.values())


def test_edges_follow_from_outputs_and_triggers(found):
    edges = {(edge.source, edge.target, edge.label) for edge in found.edges if edge.label}
    assert edges == {
        ("clean", "fit", "clean/{scan}.{level}.csv"),
        ("fit", "refine", "models/{stem}.json"),
        ("fit", "mend", "failed"),
        ("refine", "refine", "{dir}/{stem}.json"),
        ("refine", "again", "models/{stem}.final.json"),
        ("again", "clean", "raw/again.csv ?"),
        ("again", "table", "raw/again.csv ?"),
    }
    assert [node.label for node in found.nodes if node.kind == "output"] == ["plots/{name}.png"]


def test_text(found):
    assert graph.as_text(found) == (
        "night  (0 3 * * *)\n"
        "gone  (clean/*.csv)\n"
        "clean × 2  (raw/{scan}.csv)\n"
        "└─ clean/{scan}.{level}.csv → fit  (clean/*.csv)\n"
        "   ├─ models/{stem}.json → refine  (models/**/*.json)\n"
        "   │  ├─ {dir}/{stem}.json → refine ↑\n"
        "   │  └─ models/{stem}.final.json → again  (/models/.*\\.final\\.json/)\n"
        "   │     ├─ raw/again.csv ? → clean × 2 ↑\n"
        "   │     └─ raw/again.csv ? → table  (raw)\n"
        "   ├─ failed → mend  (after fit)\n"
        "   └─ → plots/{name}.png\n"
    )
    assert graph.as_text(graph.Graph((), ())) == ""


def test_mermaid(found):
    written = graph.as_mermaid(found)
    assert written.startswith('flowchart LR\n    n0["clean #215; 2<br/><small>raw/#123;scan#125;')
    assert '    n1 -- "failed" --> n5\n' in written


NAMESPACE = "{http://www.w3.org/2000/svg}"


def parse(text):
    return ET.fromstring(text)  # noqa: S314 - our own


def test_a_picture_is_well_formed_and_shows_everything(found):
    tree = parse(graph.as_svg(found, "a <title> & more"))
    texts = [text.text for text in tree.iter(f"{NAMESPACE}text")]
    assert {node.label for node in found.nodes} <= set(texts)
    assert len(list(tree.iter(f"{NAMESPACE}rect"))) == len(found.nodes)
    assert len([p for p in tree.iter(f"{NAMESPACE}path") if p.get("marker-end")]) == len(
        found.edges
    )
    assert next(tree.iter(f"{NAMESPACE}title")).text == "a <title> & more"


GRAPHS = st.integers(0, 14).flatmap(
    lambda size: st.tuples(
        st.just(size),
        st.lists(st.tuples(st.integers(0, max(0, size - 1)), st.integers(0, size)), max_size=30),
    )
)


@given(GRAPHS, st.text(max_size=5))
def test_any_graph_can_be_drawn_and_no_boxes_overlap(shape, label):
    size, arcs = shape
    nodes = [layout.Node(str(at), label or str(at), label, "done") for at in range(size)]
    edges = [layout.Edge(str(start), str(end), label) for start, end in arcs]
    tree = parse(layout.svg(nodes, edges))
    assert len(list(tree.iter(f"{NAMESPACE}rect"))) == size
    for group in tree.findall(f"{NAMESPACE}g"):
        boxes = [
            [float(rect.get(name, "")) for name in ("x", "y", "width", "height")]
            for rect in group.iter(f"{NAMESPACE}rect")
        ]
        for (x, y, width, height), (u, v, wide, high) in itertools.combinations(boxes, 2):
            assert x + width <= u or u + wide <= x or y + height <= v or v + high <= y


@given(GRAPHS)
def test_arrows_run_from_left_to_right_but_for_cycles(shape):
    keys = [str(at) for at in range(shape[0])]
    arcs = {(str(a), str(b)) for a, b in shape[1] if a != b and str(b) in keys}
    found = layers.columns(keys, arcs)
    column = {key: at for at, keys in enumerate(found.order) for key in keys}
    for arc, chain in found.chains.items():
        assert [column[key] for key in chain] == list(
            range(column[chain[0]], column[chain[0]] + len(chain))
        )
        assert (chain[0], chain[-1]) == (arc[::-1] if arc in found.backward else arc)


def test_a_chain_has_no_backward_arrows_and_a_long_one_is_no_trouble():
    keys = [str(at) for at in range(3000)]
    found = layers.columns(keys, list(itertools.pairwise(keys)))
    assert not found.backward
    assert len(found.order) == 3000


PARTS = st.sampled_from(
    ["a", "b", "ab", "*", "a*", "*b", "?", "[ab]", "[!a]", "**", ".a", ".*", "?*"]
)
PATTERNS = st.lists(PARTS, min_size=1, max_size=3).filter(lambda parts: parts[-1] != "**")
ALPHABET = ["a", "b", "ab", "ba", "aa", "bb", "aab", "abb", ".", ".a", ".b", ".ab"]
PATHS = [
    ("/" + "/".join(path[:-1]), path[-1])
    for depth, names in ((1, ALPHABET), (2, ALPHABET), (3, ALPHABET), (4, ALPHABET[:4]))
    for path in itertools.product(names, repeat=depth)
]


def components(parts):
    return tuple(component.parse(part) for part in parts)


@given(PATTERNS, PATTERNS)
def test_two_globs_meet_if_and_only_if_a_path_belongs_to_both(left, right):
    # The left side is an output: its wildcards may begin with a dot.
    first = glob.parse("/" + "/".join(left), hidden=True)
    second = glob.parse("/" + "/".join(right))
    meet = any(first.match(*path) is not None and second.match(*path) is not None for path in PATHS)
    assert overlap.meets(components(left), components(right)) == meet
