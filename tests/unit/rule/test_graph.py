"""The emergent workflow."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.draw.graph import as_mermaid, as_svg, as_text
from pilotage.rule import component, files, glob, graph, overlap

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
    return graph.graph(files.load_text("b.toml", TEXT, "/p", "/").rules.values())


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
    assert as_text(found) == (
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
        "   └─ plots/{name}.png\n"
    )


def test_mermaid(found):
    written = as_mermaid(found)
    assert written.startswith('flowchart LR\n    n0["clean #215; 2<br/><small>raw/#123;scan#125;')
    assert '    n1 -- "failed" --> n5\n' in written


def test_a_picture_shows_every_rule_and_output(found):
    drawn = as_svg(found).svg
    assert all(f">{node.label}</text>" in drawn for node in found.nodes)
    assert drawn.count("<rect") == len(found.nodes)
    assert drawn.count('marker-end="') == len(found.edges)


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
