"""Globs: what they match, what they capture, and what is wrong with bad ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.rule import glob

NAMES = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=[]), min_size=1, max_size=12
).filter(lambda name: name not in (".", ".."))


def match(written, path):
    directory, _, name = path.rpartition("/")
    return glob.parse(written).match(directory or "/", name)


@pytest.mark.parametrize(
    "written, path, groups",
    [
        ("/d/*.csv", "/d/a.csv", {}),
        ("/d/*.csv", "/d/e/a.csv", None),
        ("/d/*.csv", "/d/.csv", None),
        ("/d/*.csv", "/d/.a.csv", None),
        ("/d/.*.csv", "/d/.a.csv", {}),
        ("/d/?.csv", "/d/é.csv", {}),
        ("/d/?.csv", "/d/..csv", None),
        ("/d/[ab]*", "/d/b", {}),
        ("/d/[!ab]*", "/d/b", None),
        ("/d/[!ab]*", "/d/.c", None),
        ("/d/[^ab]*", "/d/c", {}),
        ("/d/[]x]", "/d/]", {}),
        ("/d/[*]", "/d/*", {}),
        ("/d/[*]", "/d/x", None),
        ("/d/[+-9]x/y", "/d//x/y", None),
        ("/d/[a-c][0-9]", "/d/b7", {}),
        ("/d/**/a", "/d/a", {}),
        ("/d/**/a", "/d/x/y/a", {}),
        ("/d/**/a", "/d/x/.y/a", None),
        ("/d/**/**/a", "/d/x/a", {}),
        ("/d/**", "/d/x/a", {}),
        ("/d/**", "/d/a", {}),
        ("/d/**", "/d", None),
        ("/**/a", "/a", {}),
        ("/**/a", "/x/a", {}),
        ("/*", "/a", {}),
        ("/d/{scan}/{i}.h5", "/d/s 1/007.h5", {"scan": "s 1", "i": "007"}),
        ("/d/{scan}.h5", "/d/.h5", None),
        ("/d/x{scan}.h5", "/d/x.h5", None),
        ("/d/{{a}}", "/d/{a}", {}),
        ("/d/{a}}}", "/d/x}", {"a": "x"}),
        ("/d/a\nb*", "/d/a\nb\nc", {}),
        ("/d/*\udcff", "/d/x\udcff", {}),
        ("/d.d/*", "/dxd/a", None),
        ("/d/*/c/**/e-*", "/d/b/c/x/y/e-1", {}),
    ],
)
def test_what_a_glob_matches(written, path, groups):
    assert match(written, path) == groups


@pytest.mark.parametrize(
    "written, message",
    [
        ("a", "the glob 'a' is not absolute"),
        ("/d/", "the glob '/d/' ends with a slash"),
        ("/d/a**", "`**` in the glob '/d/a**' does not stand alone"),
        ("/d/{a}{a}", "the glob '/d/{a}{a}' captures 'a' twice"),
        ("/d/{a-b}", "'a-b' in '{a-b}' cannot name a capture"),
        ("/d/{a", "a `{` in '{a' is not closed"),
        ("/d/a}", "a `}` in 'a}' closes nothing"),
        ("/d/[ab", "a `[` in '[ab' is not closed"),
        ("/d/[z-a]", "the range z-a in '[z-a]' is upside down"),
        ("/d/../x", "the glob '/d/../x' is not normalised: it holds `/..`"),
    ],
)
def test_a_bad_glob_says_what_is_wrong(written, message):
    with pytest.raises(errors.BadRule) as caught:
        glob.parse(written)
    assert str(caught.value) == message


def test_relative_globs_go_below_the_base():
    assert glob.absolute("raw/*.csv", "/p/x") == "/p/x/raw/*.csv"
    assert glob.absolute("./raw//a/../*.csv", "/p") == "/p/raw/*.csv"
    assert glob.absolute("../y/*", "/p/x") == "/p/y/*"
    assert glob.absolute("/abs/*", "/p") == "/abs/*"
    assert glob.absolute("*", "/") == "/*"
    assert glob.absolute("*", "/a{b}[c]") == "/a{{b}}[[]c]/*"
    with pytest.raises(errors.BadRule, match="nothing to undo"):
        glob.absolute("*/../x", "/p")
    with pytest.raises(errors.BadRule, match="empty"):
        glob.absolute("", "/p")


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_an_escaped_path_matches_itself_and_is_literal(parts):
    path = "/" + "/".join(parts)
    parsed = glob.parse(glob.escape(path))
    assert parsed.steps == ()
    assert parsed.prefix == ("/" + "/".join(parts[:-1]) if parts[1:] else "/")
    assert match(glob.escape(path), path) == {}


@given(NAMES, NAMES)
def test_any_name_is_matched_and_captured(folder, name):
    hidden = folder.startswith(".") or name.startswith(".")
    wanted = None if hidden else {"f": folder, "n": name}
    assert match("/{f}/{n}", f"/{folder}/{name}") == wanted


@given(st.text(st.sampled_from("/*?[]{}ab.!^-\\"), max_size=12))
def test_any_text_is_a_glob_or_a_bad_rule(written):
    try:
        parsed = glob.parse(glob.absolute(written, "/p"))
    except errors.BadRule:
        return
    parsed.match("/p/a", "b")
