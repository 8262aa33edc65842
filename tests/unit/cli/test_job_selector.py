"""Selectors: which words mean which jobs, and what is told of words that mean none."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.cli import job_selector
from pilotage.cli.job_selector import InState, Last, Named, Numbers, Tagged
from pilotage.hub.project import Project
from pilotage.job.model import Command, JobSpec, NewJob, State


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("42", [Numbers(42, 42)]),
        ("3-9", [Numbers(3, 9)]),
        ("1,4,7-9", [Numbers(1, 1), Numbers(4, 4), Numbers(7, 9)]),
        ("last", [Last()]),
        ("last~2", [Last(2)]),
        ("@night", [Tagged("night")]),
        ("failed", [InState(State.FAILED)]),
        ("staging_in", [InState(State.STAGING_IN)]),
        ("fit", [Named("fit")]),
        ("fit-*", [Named("fit-*")]),
        ("lastly", [Named("lastly")]),
        ("fit, 3", [Named("fit"), Numbers(3, 3)]),
    ],
)
def test_reads(text, wanted):
    assert job_selector.parse(text) == wanted


@pytest.mark.parametrize("text", ["", ",", "@", "9-3", "last~", "last~x", "1,,2", "#3", "$(rm)"])
def test_refuses_with_examples(text):
    with pytest.raises(errors.BadSelector) as caught:
        job_selector.parse(text)
    assert caught.value.exit_status == 2
    assert caught.value.hint


@given(st.text())
def test_any_text_is_understood_or_refused(text):
    with contextlib.suppress(errors.BadSelector):
        assert job_selector.parse(text)


@pytest.fixture
def project(tmp_path):
    with Project(tmp_path) as made:
        for name, tag in (("fit", ""), ("fit-2", "night"), ("plot", "night"), ("fit", "")):
            made.submit(NewJob(JobSpec(Command(("true",)), name), tag=tag))
        made.hold([3])
        yield made


@pytest.mark.parametrize(
    "texts, wanted",
    [
        (["all"], [1, 2, 3, 4]),
        (["2"], [2]),
        (["2-9"], [2, 3, 4]),
        (["last"], [4]),
        (["last~3"], [1]),
        (["@night"], [2, 3]),
        (["held"], [3]),
        (["failed"], []),
        (["fit"], [1, 4]),
        (["fit*"], [1, 2, 4]),
        (["4", "fit", "1-2"], [1, 2, 4]),
    ],
)
def test_finds(project, texts, wanted):
    assert job_selector.numbers(project, texts) == wanted


@pytest.mark.parametrize(
    "text, hint", [("99", "job ls"), ("last~4", "job ls"), ("@day", "job ls"), ("fti", "`fit`")]
)
def test_what_is_not_there_is_not_found(project, text, hint):
    with pytest.raises(errors.NotFound) as caught:
        job_selector.numbers(project, [text])
    assert hint in caught.value.hint
