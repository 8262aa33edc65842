"""The tree of errors: what the docstring draws is what the classes are."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors

TEXT = st.text(min_size=1)


def drawn() -> dict[str, tuple[str, int]]:
    """Return parent and exit status of each class that the docstring draws."""
    found: dict[str, tuple[str, int]] = {}
    stack: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"^ {4}([│├└─ ]*)([A-Z]\w+) +(\d+)", line):
            depth = len(match[1]) // 4
            stack[depth:] = [match[2]]
            found[match[2]] = (stack[depth - 1] if depth else "Exception", int(match[3]))
    return found


def classes(top: type[errors.PilotageError] = errors.PilotageError):
    yield top
    for below in top.__subclasses__():
        yield from classes(below)


def ours() -> list[type[errors.PilotageError]]:
    return [one for one in classes() if one.__module__ == "pilotage.base.errors"]


def test_the_tree_that_is_drawn_is_the_tree_that_is():
    assert drawn() == {one.__name__: (one.__mro__[1].__name__, one.exit_status) for one in ours()}


def test_nothing_is_raised_that_the_tree_does_not_show():
    public = {
        name
        for name, one in vars(errors).items()
        if isinstance(one, type) and issubclass(one, BaseException)
    }
    assert public == set(drawn())


def test_every_class_has_a_code_of_its_own_and_says_what_it_is():
    codes = [one.__dict__["code"] for one in ours()]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"E[1-8]\d\d", code) for code in codes)
    assert all((one.__dict__.get("__doc__") or "").endswith(".") for one in ours())


def test_a_class_below_another_has_a_code_and_an_exit_status_of_the_same_hundred():
    for one in ours():
        above = one.__mro__[1]
        if above not in (errors.PilotageError, Exception):
            assert one.code[:2] == above.code[:2]  # type: ignore[attr-defined]
            assert one.exit_status == above.exit_status  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ours(), ids=lambda kind: kind.__name__)
def test_every_error_carries_its_message_and_what_to_do(kind):
    error = kind("it broke", hint="mend it")
    assert (str(error), error.message, error.hint) == ("it broke", "it broke", "mend it")
    assert kind("it broke").hint == ""


def test_only_what_may_pass_by_itself_may_be_tried_again():
    again = {one.__name__ for one in ours() if one.retryable}
    assert again == {
        "Unavailable", "StoreUnavailable", "NoRunner", "Damaged", "Unheard", "TimedOut"
    }  # fmt: skip


@pytest.mark.parametrize(
    "facts, words",
    [
        ({}, "no such key"),
        ({"file": "a.toml"}, "a.toml: no such key"),
        ({"file": "a.toml", "line": 3}, "a.toml:3: no such key"),
        ({"file": "a.toml", "line": 3, "at": "rule.x"}, "a.toml:3: rule.x: no such key"),
        ({"at": "rule.x"}, "rule.x: no such key"),
    ],
)
def test_a_bad_rule_is_told_as_compilers_tell(facts, words):
    assert str(errors.BadRule("no such key", **facts)) == words


@given(TEXT, TEXT, st.integers(min_value=1), TEXT)
def test_what_is_added_to_a_bad_rule_later_is_told_too(message, file, line, at):
    error = errors.BadRule(message)
    assert str(error) == message
    error.file, error.line, error.at = file, line, at
    assert str(error) == f"{file}:{line}: {at}: {message}"
