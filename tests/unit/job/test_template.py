"""Templates: filled, typed, and never evaluated."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.job import template
from pilotage.job.model import Binding, Command, JobSpec

BINDING = Binding(
    path="/p/raw/s1/a.b.csv",
    match={"scan": "s1"},
    sweep={"level": 2},
    data={"state": "done", "items": [{"id": 7}]},
)
KNOWN = template.keywords(BINDING, "/p", 12)


@pytest.mark.parametrize(
    "text, filled",
    [
        ("{path}", "/p/raw/s1/a.b.csv"),
        ("{dir}/{name}", "/p/raw/s1/a.b.csv"),
        ("{stem}+{suffix}", "a.b+.csv"),
        ("{rel} {rel_dir} {base}", "raw/s1/a.b.csv raw/s1 /p"),
        ("{match.scan}{scan}", "s1s1"),
        ("{level}{job}", "212"),
        ("{level}", 2),
        ("{ended.state} {message.items.0.id}", "done 7"),
        ("{message.items}", [{"id": 7}]),
        ("x{message.items}", 'x[{"id":7}]'),
        ("{{level}} }}{{", "{level} }{"),
        ("{paths}", ("/p/raw/s1/a.b.csv",)),
    ],
)
def test_keywords(text, filled):
    assert template.fill(text, KNOWN) == filled


def test_a_file_beside_the_root():
    known = template.keywords(Binding(path="/a"), "/")
    assert (known["dir"], known["rel"], known["rel_dir"]) == ("/", "a", "")
    assert template.keywords(Binding(), "/p")["dir"] == ""


@pytest.mark.parametrize(
    "text, message, hint",
    [
        ("{pth}", "there is no keyword `{pth}` here", "did you mean `path`?"),
        ("{match.scn}", "there is no keyword `{match.scn}` here", "did you mean `match.scan`?"),
        ("{", "a lone `{` in '{'", "a literal brace is `{{`"),
        ("a}", "a lone `}` in 'a}'", "a literal brace is `}}`"),
        ("{}", "`{}` in '{}' is not a keyword", "literal braces are written `{{` and `}}`"),
        (
            "{print $1}",
            "`{print $1}` in '{print $1}' is not a keyword",
            "literal braces are written `{{` and `}}`",
        ),
    ],
)
def test_a_bad_template_says_what_is_wrong(text, message, hint):
    with pytest.raises(errors.BadRule) as caught:
        template.fill(text, KNOWN)
    assert (str(caught.value), caught.value.hint) == (message, hint)


def test_attributes_are_out_of_reach():
    with pytest.raises(errors.BadRule):
        template.render("{path.__class__}", KNOWN)
    with pytest.raises(errors.BadRule):
        template.render("{path!r}", KNOWN)


def test_values_are_filled_all_the_way_down():
    value = {"a": ["{level}", {"b": "x{level}"}], "c": 1.5, "d": None}
    assert template.fill(value, KNOWN) == {"a": [2, {"b": "x2"}], "c": 1.5, "d": None}


def test_arguments_are_text_and_lists_become_many():
    known = {"paths": ["a", "b c"], "n": 0.1, "on": True, "no": None}
    parts = ["cat", "{paths}", "{n}", "--on={on}", "{no}"]
    assert template.argv(parts, known) == ["cat", "a", "b c", "0.1", "--on=true", ""]


def test_parameters_come_from_captures_then_the_rule_then_the_sweep():
    spec = JobSpec(
        recipe=Command(("x",)), name="r", params={"level": 1, "out": "{stem}", "scan": "{scan}!"}
    )
    assert template.parameters(spec, BINDING, KNOWN) == {"scan": "s1!", "level": 2, "out": "a.b"}


def test_templates_are_checked_before_there_are_values():
    template.check("{path} {message.any.thing}", ["path", "message.*"])
    with pytest.raises(errors.BadRule, match=r"no keyword `\{pat\}`"):
        template.check("{pat}", ["path"])
    assert template.names("{a}{b.c}{{d}}") == {"a", "b.c"}


@given(st.text())
def test_escaped_text_comes_back(text):
    doubled = text.replace("{", "{{").replace("}", "}}")
    assert template.render(doubled, {}) == text


@given(st.text(st.sampled_from("{}ab. ")))
def test_any_text_is_a_template_or_a_bad_rule(text):
    with contextlib.suppress(errors.BadRule):
        template.render(text, {"a": 1, "b": {"a": 2}})
