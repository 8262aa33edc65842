"""Sweeps: exact points, both ends included, nothing silent."""

from __future__ import annotations

import contextlib
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.rule import sweep

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def test_ranges_include_both_ends_and_do_not_drift():
    found = sweep.points({"x": {"start": 0, "stop": 0.3, "step": 0.1}})
    assert [point["x"] for point in found] == [0.0, 0.1, 0.2, 0.3]
    assert sweep.points({"x": {"start": 1, "stop": 3}}) == ({"x": 1}, {"x": 2}, {"x": 3})
    assert [p["x"] for p in sweep.points({"x": {"start": 3, "stop": 0, "jump": -2}})] == [3, 1]
    assert sweep.points({"x": {"start": 5, "stop": 5, "step": -1}}) == ({"x": 5},)


def test_variables_are_combined_or_zipped():
    spec = {"a": [1, 2], "b": ["x", "y"]}
    assert sweep.points(spec) == (
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    )
    assert sweep.points(spec, "zip") == ({"a": 1, "b": "x"}, {"a": 2, "b": "y"})


@pytest.mark.parametrize(
    "spec, mode, message",
    [
        ({}, "product", "a sweep has no variables"),
        ({"x": []}, "product", "'x' sweeps over an empty list: no job would ever be made"),
        ({"x": 3}, "product", "'x' is 3: a sweep variable is a list or a range"),
        (
            {"x": {"start": 1, "stop": 3, "step": 0}},
            "product",
            "the range of 'x' has step 0 and would never end",
        ),
        (
            {"x": {"start": 1, "stop": 3, "step": -1}},
            "product",
            "the range of 'x' is empty: a step of -1 never gets from 1 to 3",
        ),
        ({"x": {"start": 1}}, "product", "the range of 'x' has no `stop`"),
        (
            {"x": {"start": 1, "stop": float("inf")}},
            "product",
            "`stop` of the range of 'x' is inf, not a finite number",
        ),
        (
            {"x": {"start": 1, "stop": 2, "stepp": 1}},
            "product",
            "the range of 'x' has an unknown key 'stepp'",
        ),
        (
            {"x": {"start": 0, "stop": 10**9}},
            "product",
            "'x' has 1000000001 points; more than 1000000 are refused",
        ),
        (
            {"x": [1] * 2000, "y": [1] * 2000},
            "product",
            "the sweep has 4000000 points; more than 1000000 are refused",
        ),
        (
            {"a": [1], "b": [1, 2]},
            "zip",
            "the variables of a zipped sweep differ in length: a has 1, b has 2",
        ),
        ({"a-b": [1]}, "zip", "'a-b' cannot be a parameter: it is not an identifier"),
        (
            {"PYTHONPATH": [1]},
            "product",
            (
                "'PYTHONPATH' cannot be a parameter: scripts get parameters as "
                "environment variables, and this one changes how programs run"
            ),
        ),
        ({"a": [1]}, "random", "a sweep cannot be 'random'"),
    ],
)
def test_a_bad_sweep_says_what_is_wrong(spec, mode, message):
    with pytest.raises(errors.BadRule) as caught:
        sweep.points(spec, mode)
    assert caught.value.message == message


@given(st.integers(-99, 99), st.integers(1, 40), st.integers(1, 9), st.integers(0, 3))
def test_a_range_is_what_decimal_arithmetic_says(start, count, step, digits):
    unit = Decimal(1).scaleb(-digits)
    wanted = [start * unit + at * step * unit for at in range(count)]
    spec = {"start": float(wanted[0]), "stop": float(wanted[-1]), "step": float(step * unit)}
    assert [repr(p["x"]) for p in sweep.points({"x": spec})] == [repr(float(w)) for w in wanted]


@given(st.dictionaries(st.sampled_from(["a", "start", "stop", "step", "x y"]), JSON, max_size=3))
def test_any_value_is_a_sweep_or_a_bad_rule(spec):
    for whole in (spec, {"v": spec}):
        with contextlib.suppress(errors.BadRule):
            assert sweep.points(whole)
