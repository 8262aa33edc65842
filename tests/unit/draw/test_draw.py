"""The drawing kit: layout, graphs, timelines, curves and pages of plain values."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pilotage.draw import curves, graph, layout, page, svg, timeline
from pilotage.draw.curves import Curve
from pilotage.draw.graph import Graph, GraphEdge, GraphNode
from pilotage.draw.page import (
    Cell,
    Column,
    Fact,
    FailureEntry,
    Failures,
    Figure,
    Gallery,
    Image,
    Table,
)
from pilotage.draw.timeline import TimeBar

NAMESPACE = "{http://www.w3.org/2000/svg}"


def parse(drawn: svg.Picture) -> ET.Element:
    return ET.fromstring(drawn.svg)  # noqa: S314 - our own


def texts(root: ET.Element) -> list[str]:
    return ["".join(one.itertext()) for one in root.iter(f"{NAMESPACE}text")]


# -- graphs ---------------------------------------------------------------------------------------

GRAPHS = st.integers(0, 14).flatmap(
    lambda size: st.tuples(
        st.just(size),
        st.lists(st.tuples(st.integers(0, max(0, size - 1)), st.integers(0, size)), max_size=30),
    )
)


@given(GRAPHS, st.text(max_size=5))
def test_any_graph_can_be_drawn(shape, label):
    size, arcs = shape
    nodes = [GraphNode(str(at), label or str(at), label, "done") for at in range(size)]
    edges = [GraphEdge(str(start), str(end), label) for start, end in arcs]
    root = parse(graph.as_svg(Graph(nodes, edges)))
    assert len(list(root.iter(f"{NAMESPACE}rect"))) == size
    known = {(start, end) for start, end in arcs if max(start, end) < size}
    arrows = [one for one in root.iter(f"{NAMESPACE}path") if one.get("marker-end")]
    assert len(arrows) == len(known)


@given(GRAPHS, st.sampled_from(["", "a label"]))
def test_boxes_never_overlap_and_all_is_inside_the_picture(shape, label):
    size, arcs = shape
    sizes = {str(at): (60.0 + 10 * at, 30.0 + at) for at in range(size)}
    labels = {(str(a), str(b)): label for a, b in arcs if max(a, b) < size}
    found = layout.arrange(sizes, labels)
    assert list(found.boxes) == list(sizes)
    assert {(one.source, one.target) for one in found.arrows} == set(labels)
    for one, other in itertools.combinations(found.boxes.values(), 2):
        beside = one.right <= other.x or other.right <= one.x
        assert beside or one.bottom <= other.y or other.bottom <= one.y
    for key, box in found.boxes.items():
        assert box.width >= sizes[key][0]
        assert min(box.x, box.y) >= 0
        assert box.right <= found.width
        assert box.bottom <= found.height


def test_a_long_arrow_beside_the_boxes_is_inside_the_picture():
    keys = [str(at) for at in range(6)]
    arcs = dict.fromkeys([*itertools.pairwise(keys), ("0", "5")], "")
    found = layout.arrange(dict.fromkeys(keys, (80.0, 40.0)), arcs)
    long = next(one for one in found.arrows if (one.source, one.target) == ("0", "5"))
    heights = [float(part.split()[-1]) for part in long.path.split("H")[0].split("C")[1:]]
    assert heights
    assert all(0 <= height <= found.height for height in heights)


@given(GRAPHS)
def test_arrows_run_from_left_to_right_but_for_cycles(shape):
    keys = [str(at) for at in range(shape[0])]
    arcs = {(str(a), str(b)) for a, b in shape[1] if a != b and str(b) in keys}
    found = layout.columns(keys, arcs)
    column = {key: at for at, keys in enumerate(found.order) for key in keys}
    for arc, chain in found.chains.items():
        assert [column[key] for key in chain] == list(
            range(column[chain[0]], column[chain[0]] + len(chain))
        )
        assert (chain[0], chain[-1]) == (arc[::-1] if arc in found.backward else arc)


def test_a_chain_has_no_backward_arrows_and_a_long_one_is_no_trouble():
    keys = [str(at) for at in range(3000)]
    found = layout.columns(keys, list(itertools.pairwise(keys)))
    assert not found.backward
    assert len(found.order) == 3000


def test_text_in_a_picture_is_escaped_and_states_have_signs():
    node = GraphNode("a", "<b> & 'c'", "second", "failed", progress=0.25, hint="more\n<i>")
    root = parse(graph.as_svg(Graph([node], [GraphEdge("a", "a", "<again>")]), "a <title> & more"))
    assert texts(root) == ["✗ <b> & 'c'", "second", "<again>"]
    titles = [one.text for one in root.iter(f"{NAMESPACE}title")]
    assert titles == ["a <title> & more", "more\n<i>"]
    _, rail, bar = root.iter(f"{NAMESPACE}rect")
    assert float(bar.get("width", "")) == float(rail.get("width", "")) / 4


def test_mermaid_and_text():
    found = Graph(
        [
            GraphNode("a", "make", "x.csv", "done"),
            GraphNode("b", "use", kind="planned"),
            GraphNode("c", "out.png", kind="output"),
        ],
        [GraphEdge("a", "b", "x{1}"), GraphEdge("b", "c"), GraphEdge("b", "a")],
    )
    assert graph.as_text(found) == (
        "✓ make  x.csv\n"
        "└─ x{1} → use\n"
        "   ├─ out.png\n"
        "   └─ make ↑\n"
    )  # fmt: skip
    assert graph.as_text(Graph((), ())) == ""
    assert graph.as_mermaid(found).splitlines()[:6] == [
        "flowchart LR",
        '    n0["make<br/><small>x.csv</small>"]:::done',
        '    n1["use"]:::planned',
        '    n2(["out.png"]):::output',
        '    n0 -- "x#123;1#125;" --> n1',
        "    n1 --> n2",
    ]


# -- timelines ------------------------------------------------------------------------------------

SPANS = st.lists(
    st.tuples(st.sampled_from(["", "far", "near"]), st.floats(0, 100), st.floats(0, 50)),
    max_size=40,
).map(
    lambda found: [
        TimeBar(lane, f"n{at % 3}", start, start + seconds, "hint", at % 7 == 0)
        for at, (lane, start, seconds) in enumerate(found)
    ]
)


@given(SPANS)
def test_spans_in_a_row_never_overlap(spans):
    bars = timeline.rows(spans)
    assert len(bars) == len(spans)
    for (span, row), (other, its) in itertools.combinations(bars, 2):
        assert row != its or span.end <= other.start or other.end <= span.start
    # As many rows as ran at once, and no more.
    at_once = [
        sum(one is bar or one[0].start <= bar[0].start < one[0].end for one in bars) for bar in bars
    ]
    assert max((row + 1 for _, row in bars), default=0) <= max(at_once, default=0)


@given(SPANS)
def test_any_timeline_can_be_drawn(spans):
    drawn = timeline.as_svg(spans, svg.palette(span.name for span in spans), "jobs")
    assert bool(drawn.svg) == bool(spans)
    assert drawn.svg.count("<title>hint</title>") == len(spans)
    assert drawn.svg.count(f'fill="{svg.FAILED}"') == sum(span.failed for span in spans)
    assert "nan" not in drawn.svg


def test_marks_of_a_time_axis_are_round_and_few():
    def words(seconds: float) -> list[str]:
        return [word for _, word in svg.time_marks(seconds)]

    assert words(0.04) == ["0", "0.01 s", "0.02 s", "0.03 s", "0.04 s"]
    assert words(45) == ["0", "5 s", "10 s", "15 s", "20 s", "25 s", "30 s", "35 s", "40 s", "45 s"]
    assert words(6 * 86400) == ["0", "1 d", "2 d", "3 d", "4 d", "5 d", "6 d"]
    assert all(len(words(1.7**power)) <= 11 for power in range(-8, 30))


# -- curves ---------------------------------------------------------------------------------------


def test_curves_of_all_panels_are_in_one_picture():
    look = (Curve("cores", "#111111", filled=True), Curve("demand", "#222222", "6 3"))
    panels: dict[str, dict[str, list[float]]] = {
        "a < b": {"cores": [0.0, 4.0], "demand": [4.0, 700.0]}, "c": {"cores": [], "demand": []},
    }  # fmt: skip
    root = parse(curves.as_svg("<it>", look, panels, 60.0))
    shown = texts(root)
    assert {"a < b", "c", "cores", "demand", "800", "2 m"} <= set(shown)
    assert next(root.iter(f"{NAMESPACE}title")).text == "<it>"


def test_curves_as_text_are_blocks_on_one_scale():
    assert curves.blocks([0.0, 1.0, 4.0, 8.0, None], 8.0) == "·▁▄█ "
    assert curves.resample([1.0, 3.0, None, None, 5.0, 7.0], 3) == [2.0, None, 6.0]
    assert curves.resample([1.0], 60) == [1.0]


# -- pages ----------------------------------------------------------------------------------------


def test_a_page_has_all_of_its_sections_and_escapes_all_but_pictures(tmp_path: Path):
    whole = page.Page(
        title="<t>",
        lead="<l>",
        about="<a>",
        reason=Cell("<r>", "failed"),
        facts=[Fact("<f>", page.count(12345), "done")],
        foot="<z>",
        before="<p id='mine'></p>",
        sections=[
            Figure(
                head="<1>",
                picture=graph.as_svg(Graph([GraphNode("a", "b")], [])),
                caption="<c>",
                legend=page.legend({"<k>": "#123456"}, failed=True),
            ),
            Failures(
                head="<2>",
                note="<n>",
                failures=[
                    FailureEntry(
                        name="<m>", state="failed", note="<o>", reason="<y>", output="<e>\x1b[0m"
                    ),
                ],
            ),
            Table(
                head="<3>",
                columns=(Column("<h>"), Column("<i>", number=True)),
                fold="<s>",
                rows=[("<x>", "1"), (Cell("<v>", "done", "<w>"), "2")],
            ),
            Gallery(head="<4>", images=[Image("data:image/png;base64,AA", "<q>")], note="<u>"),
        ],
    )
    out = tmp_path / "page.html"
    page.write(whole, out)
    written = out.read_text()
    for letter in "tlarfzckmoyhisxvwqun1234":
        assert f"&lt;{letter}&gt;" in written
        assert f"<{letter}>" not in written
    assert "<p id='mine'></p>" in written
    assert "12&#8239;345" in written
    assert "&lt;e&gt;\\x1b[0m" in written
    assert '<td class="n">1</td>' in written
    assert "<svg" in written
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]


def test_more_than_a_dozen_colours_have_no_legend():
    many = svg.palette(str(number) for number in range(13))
    assert page.legend(many, failed=False) == {}
    assert list(page.legend(many, failed=True)) == ["failed"]
