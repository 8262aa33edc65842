"""Requirements and ranks: what they mean, that they always end, and what they say when wrong."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.match.expr import clauses, grammar, parse, tree, value

OFFER = {
    "cpus": 64, "memory": 256 * 10**9, "disk": 10**12, "gpus": 0, "os": "linux", "site": "kit",
    "arch": "x86_64", "host": "node-17.kit.edu", "python_version": "3.11.2", "shared": True,
    "sandboxes": ["none", "bubblewrap"], "load": 0.5, "nothing": None,
}  # fmt: skip
JOB = {"cpus": 4, "memory": 8 * 10**9, "owner": "cms/ann"}


def ask(text: str) -> Any:
    return parse(text).evaluate(OFFER, JOB)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("cpus >= 4", True),
        ("64 <= cpus", True),
        ("memory >= job.memory * job.cpus", True),
        ("memory == 256G and disk >= 0.5T", True),
        ("memory > 238GiB and memory < 239GiB", True),
        ("2h == 7200 and 90s < 2min and 1.5k == 1500", True),
        ("os == 'linux' && !(site == \"cern\")", True),
        ("os == 'Linux'", False),
        ("lower('LiNuX') == os", True),
        ("site in ['cern', 'kit']", True),
        ("site not in ['cern', 'kit']", False),
        ("'bubblewrap' in sandboxes", True),
        ("'podman' in sandboxes", False),
        ("cpus in [1, 64.0]", True),
        ("host like 'node-*.kit.edu'", True),
        ("host like 'node-?'", False),
        ("'3.9' < python_version", False),
        ("version(python_version) >= version('3.9')", True),
        ("version(python_version) >= '3.12rc1'", False),
        ("version('5.0-rc1') < version('5') and version('5.0') == '5'", True),
        ("version('0.0') == version('0')", True),
        ("shared", True),
        ("shared == true", True),
        ("min(cpus, 8) + max([1, 2, 3]) - floor(2.7) * ceil(0.2)", 9),
        ("-cpus % 7", -64 % 7),
        ("7 / 2", 3.5),
        ("if(gpus > 0, 'gpu', 'cpu')", "cpu"),
        ("job.owner like 'cms/*'", True),
        ("offer.cpus == cpus", True),
        ("'it\\'s' == \"it's\"", True),
        ("[1, cpus]", [1, 64]),
        ("1 + 2 * 3 == 7 and (1 + 2) * 3 == 9 and 10 - 2 - 3 == 5", True),
        ("true or false and false", True),
        ("not false and false", False),
    ],
)
def test_an_expression_has_the_value_that_it_reads_like(text, expected):
    found = ask(text)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "text",
    [
        "gpu_model", "gpu_model == 'H100'", "gpu_model != 'H100'", "not gpu_model", "nothing",
        "true == 1", "cpus == '64'", "cpus > 'a'", "shared > false", "os + 'x'", "1 / 0", "1 % 0",
        "-os", "cpus and true", "true and gpu_model", "gpu_model or false", "if(cpus, 1, 2)",
        "gpu_model in ['a']", "site in 'kit'", "site in [undefined]", "max(cpus, gpu_model)",
        "floor(os)", "version(os)", "version(load)", "1e300 * 1e300", "gpu_model like '*'",
        "sandboxes == sandboxes", "lower(cpus)", "max([])",
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_undefined_and_holds_nowhere(text):
    assert ask(text) is None
    assert not parse(text).holds(OFFER, JOB)
    assert not parse(f"not ({text})").holds(OFFER, JOB)
    assert parse(text).number(OFFER, JOB) == 0.0


@pytest.mark.parametrize("sign", ["and", "or"])
@pytest.mark.parametrize("left", [True, False, None])
@pytest.mark.parametrize("right", [True, False, None])
def test_logic_is_that_of_kleene(sign, left, right):
    order = {False: 0, None: 1, True: 2}
    choose = min if sign == "and" else max
    expected = choose((left, right), key=order.__getitem__)
    offer = {"a": left, "b": right}
    assert parse(f"a {sign} b").evaluate(offer, {}) is expected
    assert parse(f"not (a {sign} b)").evaluate(offer, {}) is (
        None if expected is None else not expected
    )


def test_identity_is_never_undefined():
    assert ask("gpu_model is undefined") is True
    assert ask("gpu_model is not undefined") is False
    assert ask("cpus is 64.0") is True
    assert ask("shared is 1") is False
    assert ask("cpus is not '64'") is True
    assert ask("sandboxes is ['none', 'bubblewrap']") is True
    assert ask("defined(cpus) and not defined(gpu_model)") is True


def test_a_rank_is_a_number_whatever_it_says():
    assert parse("memory / 1G").number(OFFER, JOB) == 256.0
    assert parse("site == 'kit'").number(OFFER, JOB) == 1.0
    assert parse("site != 'kit'").number(OFFER, JOB) == 0.0
    assert parse("a").number({"a": 10**5000}, {}) == 0.0
    assert parse("a").number({"a": math.nan}, {}) == 0.0


def test_names_are_told_by_whose_they_are():
    expr = parse("memory >= job.memory and offer.gpus > 0 and lower(job.owner) in tags")
    assert expr.names == {"memory", "gpus", "tags"}
    assert expr.job_names == {"memory", "owner"}


def test_clauses_are_what_must_hold_together():
    expr = parse("cpus>=4 && (memory >= 2G and not (site=='x' || gpus>0)) and (a or b)")
    assert [clause.text for clause in clauses(expr)] == [
        "cpus >= 4",
        "memory >= 2G",
        "not (site == 'x' or gpus > 0)",
        "a or b",
    ]
    assert clauses(parse("a or b")) == (parse("a or b"),)


@pytest.mark.parametrize(
    "text, at, words, hint",
    [
        ("", None, "empty", "true"),
        ("cpus = 4", 6, "'='", "`==`"),
        ("cpus => 4", 6, "'='", "`>=`"),
        ("host =~ 'x'", 6, "'='", "like"),
        ("cpus >= ", 9, "a value is wanted here, not the end", ""),
        ("cpus >=> 4", 8, "not `>`", ""),
        ("cpus 4", 6, "`4` cannot stand here", "`and`"),
        ("(cpus > 4", 10, "`)` is wanted", ""),
        ("site == 'kit", 9, "means nothing", "not closed"),
        ("memory > 512m", 10, "minutes or megabytes", "`512min` or `512M`"),
        ("memory > 4X", 10, "no unit", "4G"),
        ("foor(cpus)", 1, "no function `foor`", "`floor`"),
        ("job.memry > 3", 1, "no attribute `memry`", "`job.memory`"),
        ("floor(1, 2)", 1, "takes 1 values, not 2", ""),
        ("1 < cpus < 4", 10, "do not chain", "and"),
        ("host like os", 6, "pattern", "node-*"),
        ("version(3.10) > version(x)", 1, "no version", "'3.10'"),
        ("version(x) > 3.10", 12, "no version", "'3.10'"),
        ("9" * 400, 1, "too large", ""),
        ("__import__('os')", 1, "no function", ""),
        ("cpus.__class__()", 1, "no function", ""),
    ],
)
def test_an_error_says_where_and_what_to_do(text, at, words, hint):
    with pytest.raises(errors.BadRule) as caught:
        parse(text)
    assert words in caught.value.message
    assert hint in caught.value.hint
    if at is not None:
        assert f"at character {at} " in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "x" * 4097,
        "1 + " * 300 + "1",
        " and ".join(["a"] * 300),
        f"[{', '.join(['1'] * 300)}]",
        "(" * 100 + "1" + ")" * 100,
        "not " * 40 + "a",
        "-" * 2000 + "1",
        " + ".join(["1"] * 40),
    ],
)
def test_what_is_too_large_is_refused(text):
    with pytest.raises(errors.BadRule):
        parse(text)


def test_many_clauses_side_by_side_are_not_deep():
    text = " and ".join(f"a{number} > {number}" for number in range(60))
    assert parse(text).holds({f"a{number}": number + 1 for number in range(60)}, {})


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    try:
        parse(text)
    except errors.BadRule:
        return
    assert text.strip()


def test_all_that_the_page_of_expressions_shows_can_be_read():
    page = (Path(__file__).parents[3] / "docs/reference/expressions.md").read_text()
    part = page[page.index("## Values") : page.index("ClassAd |")]
    rows = re.findall(r"^\| (`[^|]*`) \|", part, re.MULTILINE)
    assert len(rows) == 14
    for shown in re.findall(r"`([^`]+)`", "\n".join(rows)):
        parse(shown)
    missing = [name for name in grammar.FUNCTIONS if f"{name}(" not in page]
    assert missing == []


# -- trees ---------------------------------------------------------------------------------------

_LITERALS = st.sampled_from(
    [
        tree.Literal(4 * 10**9, "4G"),
        tree.Literal(1.5, "1.5"),
        tree.Literal("a b", "'a b'"),
        tree.Literal(True, "true"),
        tree.Literal(None, "undefined"),
    ]
)
_LEAVES = _LITERALS | st.builds(tree.Name, st.sampled_from(["a", "b", "c"])) | st.just(
    tree.Name("cpus", "job")
)  # fmt: skip
_SIGNS = ["==", "!=", "<", "<=", ">", ">=", "in", "is", "is not", "+", "-", "*", "/", "%"]


def _inner(nodes: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pairs = st.tuples(nodes, nodes)
    return (
        st.builds(tree.Not, nodes)
        | st.builds(tree.Negative, nodes)
        | st.builds(tree.Pair, st.sampled_from(_SIGNS), nodes, nodes)
        | st.builds(lambda item: tree.Pair("like", item, tree.Literal("x*", "'x*'")), nodes)
        | st.builds(tree.ChainOp, st.sampled_from(["and", "or"]), pairs)
        | st.builds(tree.Items, pairs)
        | st.builds(tree.FunctionCall, st.sampled_from(["min", "max"]), pairs)
        | st.builds(lambda c, a, b: tree.FunctionCall("if", (c, a, b)), nodes, nodes, nodes)
    )


TREES = st.recursive(_LEAVES, _inner, max_leaves=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
) | st.sampled_from([10**400, "x" * 2000, {"a": 1}, object(), b"x", float("inf")])


@given(TREES)
def test_what_is_written_back_reads_as_the_same(node):
    text = tree.write(node)
    # Chains of one sign become one chain: compare what is written, which is then a fixed point.
    again = tree.write(parse(text).tree)
    assert tree.write(parse(again).tree) == again


@given(TREES, st.fixed_dictionaries({}, optional={"a": VALUES, "b": VALUES, "c": VALUES}))
def test_evaluating_never_fails_and_a_clause_that_fails_fails_the_whole(node, offer):
    text = tree.write(node)
    expr = parse(text)
    found = expr.evaluate(offer, {"cpus": 2})
    assert found is None or isinstance(found, (bool, int, float, str, list, tuple))
    assert expr.holds(offer, {"cpus": 2}) == (found is True)
    assert math.isfinite(expr.number(offer, {"cpus": 2}))
    again = parse(tree.write(expr.tree)).evaluate(offer, {"cpus": 2})
    assert value.same(found, again) or found == again
    parts = clauses(expr)
    assert expr.holds(offer, {"cpus": 2}) == all(part.holds(offer, {"cpus": 2}) for part in parts)
