"""Durations and sizes: what people write is read, and all else is refused by name."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pilotage.base import errors, units

ALPHABET = st.text("0123456789 .:-+_smhdwkKMGTPiBeEnaf\n\t٣", max_size=20)


@pytest.mark.parametrize(
    "written, value",
    [
        (90, 90.0),
        (0, 0.0),
        (0.25, 0.25),
        ("90", 90.0),
        (" 90 ", 90.0),
        ("1.5", 1.5),
        ("90s", 90.0),
        ("250ms", 0.25),
        ("2 min", 120.0),
        ("2m", 120.0),
        ("1h 30m", 5400.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        (" 1d 2h ", 93_600.0),
        ("2w", 1_209_600.0),
        ("01:30:00", 5400.0),
        ("1:30", 5400.0),
        ("1-12:00:00", 129_600.0),
        ("1-00:00", 86_400.0),
    ],
)
def test_durations(written, value):
    assert units.seconds(written) == value


@pytest.mark.parametrize(
    "written, value",
    [
        (1000, 1000),
        (0, 0),
        ("0", 0),
        ("1000", 1000),
        ("1000B", 1000),
        ("8G", 8 * 10**9),
        ("8GB", 8 * 10**9),
        ("8Gi", 8 * 2**30),
        ("8gib", 8 * 2**30),
        ("512 MiB", 512 * 2**20),
        ("1.5k", 1500),
        ("1.5Ki", 1536),
        ("1T", 10**12),
        ("1Pi", 2**50),
    ],
)
def test_sizes(written, value):
    assert units.size(written) == value


@pytest.mark.parametrize(
    "written",
    [
        "", " ", "soon", "1 hour", "h", "1h x", "x 1h", "1h-30m", "-1", "-1s", "nan", "inf",
        "1e999", "1:2", "1:2:3", "1-12", math.nan, math.inf, -1, -0.5, "1 2", "9" * 400, 10**400,
        "9" * 400 + ":00", "9" * 5000 + ":00", "9" * 5000 + "-00:00:00", "9" * 400 + "s",
    ],
    ids=lambda written: str(written)[:12],
)  # fmt: skip
def test_what_is_no_duration_is_refused(written):
    with pytest.raises(errors.UsageError):
        units.seconds(written)


@pytest.mark.parametrize(
    "written",
    ["", "G", "8X", "8 Gb it", "-8G", "1e3", "nan", -1, math.inf, math.nan, "9" * 400, 10**400],
    ids=lambda written: str(written)[:12],
)
def test_what_is_no_size_is_refused(written):
    with pytest.raises(errors.UsageError):
        units.size(written)


def test_who_cannot_be_understood_is_told_how_to_write_it():
    with pytest.raises(errors.UsageError, match="'soon' as a duration") as caught:
        units.seconds("soon")
    assert "1h 30m" in caught.value.hint
    with pytest.raises(errors.UsageError, match="'big' as a size") as caught:
        units.size("big")
    assert "8G" in caught.value.hint


@given(st.text() | ALPHABET)
@example("9" * 5000 + ":00")
@example("1:0٣")
def test_any_text_is_a_duration_or_is_refused(written):
    try:
        value = units.seconds(written)
    except errors.UsageError as error:
        assert repr(written) in error.message  # noqa: PT017 - both ways are right
    else:
        assert 0 <= value < math.inf


@given(st.text() | ALPHABET)
def test_any_text_is_a_size_or_is_refused(written):
    try:
        value = units.size(written)
    except errors.UsageError as error:
        assert repr(written) in error.message  # noqa: PT017 - both ways are right
    else:
        assert value >= 0


@given(st.integers(0, 2**50), st.sampled_from(["ms", "s", "m", "min", "h", "d", "w"]))
def test_a_number_with_a_unit_is_their_product(number, unit):
    one = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}[unit]
    assert units.seconds(f"{number}{unit}") == pytest.approx(number * one)
    assert units.seconds(f" {number} {unit} ") == pytest.approx(number * one)


@given(st.integers(0, 1000), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_slurm_writes_the_same_duration_in_another_way(days, hours, minutes, seconds):
    slurm = units.seconds(f"{days}-{hours:02d}:{minutes:02d}:{seconds:02d}")
    assert slurm == units.seconds(f"{days}d {hours}h {minutes}m {seconds}s")


@pytest.mark.parametrize(
    "value, words",
    [
        (0, "0 ms"),
        (0.012, "12 ms"),
        (1, "1.0 s"),
        (59.94, "59.9 s"),
        (60, "1 m"),
        (192, "3 m 12 s"),
        (3600, "1 h"),
        (5400, "1 h 30 m"),
        (90061, "1 d 1 h"),
    ],
)
def test_durations_for_people(value, words):
    assert units.for_people(value) == words


@given(st.floats(0, 1e9))
def test_what_people_are_shown_can_be_read_back(value):
    # Two units at most are shown, so what is lost is less than the smaller of them.
    lost = 3600 if value >= 86399 else 60 if value >= 3599 else 1
    assert units.seconds(units.for_people(value)) == pytest.approx(value, abs=lost)


@given(st.integers(0, 2**50))
def test_sizes_that_people_are_shown_can_be_read_back(value):
    assert units.size(units.bytes_for_people(value)) == pytest.approx(value, rel=0.05)


@pytest.mark.parametrize(
    "value, words",
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (8 * 2**30, "8.0 GiB"),
        (2**50, "1024.0 TiB"),
    ],
)
def test_sizes_for_people(value, words):
    assert units.bytes_for_people(value) == words
