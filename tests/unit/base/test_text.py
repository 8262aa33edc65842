"""Text on its way to disk and back: any bytes, any JSON, and nothing that upsets a terminal."""

from __future__ import annotations

import json
import os.path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pilotage.base import text

NAME = st.binary(min_size=1, max_size=12).filter(
    lambda name: not {0, 0x2F} & set(name) and name not in (b".", b"..")
)
PATH = st.lists(NAME, max_size=6).map(lambda names: "/" + os.fsdecode(b"/".join(names)))
#: Any text at all: with lone surrogates of every kind.
ANY = st.text(st.characters(exclude_categories=[]))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | ANY,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY, inner, max_size=4),
)


@given(PATH)
@example("/")
@example("/\udcff")
@example("/a\udc80\udcff/\udcc3\udca9ff")
@example("/\udcaff/aa")
def test_any_path_comes_back_from_the_store(path):
    stored = text.store_path(path)
    stored.encode()  # SQLite takes UTF-8 only
    assert text.load_path(stored) == path


@given(PATH, PATH)
def test_no_two_paths_are_stored_alike(one, other):
    assert (text.store_path(one) == text.store_path(other)) == (one == other)


def test_a_stored_path_stays_readable():
    assert text.store_path("/data/plain é") == "/data/plain é"
    assert text.store_path("/data/\udcff.csv") == "/data///ff.csv"


@given(JSON)
def test_any_json_comes_back(value):
    written = text.dump(value)
    written.encode()
    assert text.load(written) == value
    assert text.load(written.encode()) == value


@given(JSON)
def test_what_is_written_is_json_for_everyone(value):
    assert json.loads(text.dump(value)) == value


class Noun(msgspec.Struct):
    name: str
    many: tuple[str, ...] = ()


@given(ANY, st.lists(ANY).map(tuple))
def test_nouns_come_back_too(name, many):
    noun = Noun(name, many)
    assert msgspec.convert(text.load(text.dump(noun)), Noun) == noun


@pytest.mark.parametrize("written", ["", "{", "nope", '{"a": }'])
def test_what_is_no_json_is_said_to_be_none(written):
    with pytest.raises(json.JSONDecodeError):
        text.load(written)


@given(ANY | PATH)
@example("\ud800")
@example("a\x1b[31mred\x07\n\u202e")
def test_anything_can_be_shown_and_upsets_no_terminal(value):
    shown = text.show(value)
    shown.encode()
    assert shown.isprintable()


@given(st.text().filter(str.isprintable))
def test_what_is_printable_is_shown_as_it_is(value):
    assert text.show(value) == value


@pytest.mark.parametrize(
    "value, shown",
    [
        ("a\nb", r"a\nb"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\udcff.csv", r"\xff.csv"),
        ("\ud800", r"\ud800"),
        ("\udcff\ud800é", r"\xff\ud800é"),
    ],
)
def test_what_is_odd_is_escaped(value, shown):
    assert text.show(value) == shown


class Inner(msgspec.Struct):
    number: int


class Outer(msgspec.Struct):
    inner: list[Inner]


class Odd(msgspec.Struct):
    """Nobody could tell which of the two is meant."""

    either: Inner | Outer


def test_all_kinds_of_structs_are_worked_out_once(monkeypatch):
    seen: list[type] = []
    before = text.prime

    def prime(kind):
        seen.append(kind)
        before(kind)

    monkeypatch.setattr(text, "_primed", set())
    monkeypatch.setattr(text, "prime", prime)
    text.prime_all()
    assert {Inner, Outer, Odd} <= set(seen)
    many = len(seen)
    text.prime_all()
    assert len(seen) == many
