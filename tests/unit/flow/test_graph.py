"""Order and circles of steps, and templates."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.flow import graph, template

_NAMES = st.sampled_from("abcdefg")


@given(st.dictionaries(_NAMES, st.sets(_NAMES, max_size=3), min_size=1))
def test_a_circle_is_a_path_of_steps_that_wait_for_each_other(needs: dict[str, set[str]]) -> None:
    known = {name: sorted(one for one in before if one in needs) for name, before in needs.items()}
    circle = graph.cycle(known)
    order = graph.order(known)
    if not circle:
        places = {name: place for place, name in enumerate(order)}
        assert all(places[one] < places[name] for name in known for one in known[name])
        return
    assert circle[0] == circle[-1]
    assert len(set(circle)) == len(circle) - 1
    assert all(before in known[after] for before, after in itertools.pairwise(circle))
    assert not set(circle) & set(order)


def test_a_long_circle_is_found_without_calls_in_calls() -> None:
    count = 20_000
    needs = {str(at): [str((at - 1) % count)] for at in range(count)}
    assert len(graph.cycle(needs)) == count + 1
    after = graph.followers(needs)
    assert len(graph.downstream(after, ["7"])) == count


def test_downstream_is_the_steps_and_all_after_them() -> None:
    needs = {"a": [], "b": ["a"], "c": ["b"], "d": ["a"], "e": []}
    assert graph.downstream(graph.followers(needs), ["b"]) == {"b", "c"}
    assert graph.order(needs) == ["a", "e", "b", "d", "c"]


@pytest.mark.parametrize(
    "written, found",
    [
        ("plain", "plain"),
        ("{a}", [1, 2]),
        ("{a} and {b-c.d}", "[1,2] and x"),
        ("{{a}} is {none}", "{a} is "),
        ({"k": ["{a}", 3, {"deep": "{b-c.d}!"}]}, {"k": [[1, 2], 3, {"deep": "x!"}]}),
    ],
)
def test_templates_are_filled_and_keep_types(written: Any, found: Any) -> None:
    values = {"a": [1, 2], "b-c.d": "x", "none": None}
    assert template.fill(written, values.__getitem__) == found


@pytest.mark.parametrize("written", ["{", "}", "{}", "{a b}", "{a!r}", "{a[0]}", "{a.}"])
def test_what_is_no_template_is_refused(written: str) -> None:
    with pytest.raises(errors.BadFlow):
        template.fill(written, lambda _: 1)


def test_conditions_name_what_they_ask_for() -> None:
    condition = "a.result.n > 3 and {1-fit.state} == 'done' or not quick"
    assert template.condition_names(condition) == {"a.result.n", "1-fit.state", "quick"}
    values = {"a.result.n": 4, "1-fit.state": "failed", "quick": True}
    assert not template.holds(condition, values.__getitem__)
    assert template.holds(condition, {**values, "quick": False}.__getitem__)
    # Text that comes from a result is a value, never a part of the expression.
    assert not template.holds("{x} == 'y'", {"x": "y' or 'a' == 'a"}.__getitem__)
