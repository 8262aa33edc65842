"""TOML with positions: lines of keys, keys of mistakes, and folders of files."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors, toml, units


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    count: Annotated[int, msgspec.Meta(ge=0)] = 0
    names: tuple[str, ...] = ()


class Fast(msgspec.Struct, frozen=True, tag="fast", tag_field="kind", forbid_unknown_fields=True):
    speed: float = 1.0


class Slow(msgspec.Struct, frozen=True, tag="slow", tag_field="kind", forbid_unknown_fields=True):
    patience: str


class Thing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a file of the tests holds."""

    title: str
    inner: Inner = Inner()
    many: dict[str, Inner] = {}
    way: Fast | Slow = Fast()
    maybe: Inner | None = None
    time: str = "1s"


def check(name: str, thing: Thing) -> None:
    if name == "bad":
        raise errors.ConfigError(f"{name!r} cannot be a name")
    with toml.at("time"):
        units.seconds(thing.time)
    with toml.at("inner"):
        if thing.inner.count > 9:
            raise errors.ConfigError("it is too much", keys=("count",))


THINGS = toml.TomlFolder(
    folder="things", kind=Thing, noun="thing", page="things", hint="write one", check=check
)


@pytest.mark.parametrize(
    "source, keys, line",
    [
        ('title = "x"\ntitel = 1\n', ("titel",), 2),
        ("title = 1\n", ("title",), 1),
        ("\n[inner]\ncount = 1\n", (), None),
        ('title = "x"\n[inner]\ncount = "many"\n', ("inner", "count"), 3),
        ('title = "x"\ninner.count = -1\n', ("inner", "count"), 2),
        ('title = "x"\n[inner]\nnames = ["a", 1]\n', ("inner", "names"), 3),
        ('title = "x"\ninner = 3\n', ("inner",), 2),
        ('title = "x"\n[many.a]\n[many."b.c"]\nconut = 1\n', ("many", "b.c", "conut"), 4),
        ('title = "x"\n[way]\nkind = "odd"\n', ("way", "kind"), 3),
        ('title = "x"\n[way]\nkind = "fast"\nspeed = "x"\n', ("way", "speed"), 4),
        ('title = "x"\n[way]\nkind = "slow"\n', ("way",), 2),
        ('title = "x"\n[maybe]\ncount = "x"\n', ("maybe", "count"), 3),
    ],
)
def test_the_keys_and_the_line_of_what_does_not_fit(
    source: str, keys: tuple[str, ...], line: int | None
):
    with pytest.raises(errors.ConfigError) as caught:
        toml.convert(tomllib.loads(source), Thing)
    assert caught.value.keys == keys
    assert toml.line_of(source, keys) == line


values = st.recursive(
    st.one_of(st.integers(), st.text(max_size=3), st.booleans(), st.floats()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["title", "inner", "many", "way", "kind", "count", "x"]), inner
        ),
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["title", *Thing.__struct_fields__, "x"]), values))
def test_the_keys_lead_to_something_that_is_there(found: dict[str, Any]):
    try:
        toml.convert(found, Thing)
    except errors.ConfigError as error:
        here: Any = found
        for key in error.keys:
            here = here[key]
    else:
        assert toml.fault(found, Thing) == ()


@pytest.mark.parametrize(
    "source, words",
    [
        ("title = ?\n", "things/it.toml: .*at line 1"),
        ('title = "x"\ntime = "soon"\n', "it.toml:2: .*'soon'.* at `[$].time`"),
        ('title = "x"\n[inner]\ncount = 10\n', "it.toml:3: it is too much"),
        ('title = "x"\n[inner]\ncuont = 10\n', "it.toml:3: .*cuont"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, source: str, words: str):
    THINGS.create(tmp_path, "it", source)
    with pytest.raises(errors.ConfigError, match=words) as caught:
        THINGS.read(tmp_path, "it")
    assert caught.value.hint


def test_a_name_that_cannot_be_has_no_line():
    with pytest.raises(errors.ConfigError, match="cannot be a name") as caught:
        THINGS.parse('title = "x"', "bad", Path("bad.toml"))
    assert caught.value.message == "bad.toml: 'bad' cannot be a name"


def test_a_folder_is_written_and_read(tmp_path: Path):
    assert THINGS.names(tmp_path) == []
    file = THINGS.create(tmp_path, "b", 'title = "x"\n')
    THINGS.create(tmp_path, "a", 'title = "y"\n')
    (tmp_path / "things" / "notes.txt").write_text("")
    (tmp_path / "things" / "folder.toml").mkdir()
    assert file == THINGS.file(tmp_path, "b")
    assert THINGS.names(tmp_path) == ["a", "b"]
    assert {name: one.title for name, one in THINGS.read_all(tmp_path).items()} == {
        "a": "y",
        "b": "x",
    }
    with pytest.raises(errors.Conflict, match="the thing `b` exists already"):
        THINGS.create(tmp_path, "b", "")
    assert THINGS.read(tmp_path, "b").title == "x"


@pytest.mark.parametrize("name", ["c", "../things/b"])
def test_what_is_not_there_is_told_with_what_is(tmp_path: Path, name: str):
    THINGS.create(tmp_path, "b", 'title = "x"\n')
    with pytest.raises(errors.NotFound, match="there is no thing") as caught:
        THINGS.read(tmp_path, name)
    assert caught.value.hint == "things are b; write one"


def test_text_that_is_not_utf_8(tmp_path: Path):
    THINGS.file(tmp_path, "odd").parent.mkdir()
    THINGS.file(tmp_path, "odd").write_bytes(b"\xff")
    with pytest.raises(errors.ConfigError, match=r"odd\.toml"):
        THINGS.read(tmp_path, "odd")


@given(st.dictionaries(st.text("abc", min_size=1, max_size=2), st.integers(), min_size=1))
def test_the_line_of_each_key_is_found(table: dict[str, int]):
    source = "# a comment\n[t.u]\n" + "".join(f"{key} = {value}\n" for key, value in table.items())
    for number, key in enumerate(table, 3):
        assert toml.line_of(source, ("t", "u", key)) == number
    assert toml.line_of(source, ("t",)) == 2
    assert toml.line_of(source, ("none",)) is None
