"""Paths that cannot be trusted: whatever others put there, no link leads out."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import durable, errors, paths


@pytest.mark.parametrize(
    "hostile",
    ["", "/etc/passwd", "../up", "a/../../b", "a//b", "a/", ".", "./a", "a/.", "..", "a\0b"],
)
def test_names_that_lead_out_are_refused(hostile):
    with pytest.raises(errors.Denied):
        paths.check_names([hostile])


def test_a_name_cannot_be_a_file_and_a_folder():
    with pytest.raises(errors.Denied, match="file and as a folder"):
        paths.check_names(["a/b", "a"])
    paths.check_names(["a/b", "a/c", "ab", "..a", "a b", "\udcff", "x\ny"])


@given(st.text())
def test_names_that_pass_stay_below(name):
    try:
        paths.check_names([name])
    except errors.Denied:
        return
    depth = 0
    assert not name.startswith("/")
    for part in name.split("/"):
        depth += -1 if part == ".." else 1
        assert depth > 0


def test_links_out_of_a_folder_are_refused(tmp_path):
    top = tmp_path / "top"
    top.mkdir()
    (top / "out").symlink_to(tmp_path)
    (top / "file").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(errors.Denied):
        paths.inside(str(top), "out/x")
    with pytest.raises(errors.Denied):
        paths.inside(str(top), "out/new/x")
    with pytest.raises(errors.Denied):
        paths.inside(str(top), "file")
    assert not (tmp_path / "new").exists()
    assert paths.inside(str(top), "a/b/c") == f"{top}/a/b/c"
    assert (top / "a" / "b").is_dir()


@pytest.mark.parametrize(
    "sha256, size", [("0" * 63, 1), ("G" * 64, 1), ("../x", 1), ("0" * 64, -1)]
)
def test_digests_that_no_file_has_are_refused(sha256: str, size: int):
    with pytest.raises(errors.Denied):
        paths.check_digest(sha256, size)
    paths.check_digest("0" * 64, 0)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A tree with good links and bad ones beside a file that is not in it."""
    (tmp_path / "secret").write_bytes(b"secret")
    made = tmp_path / "top"
    (made / "a" / "b").mkdir(parents=True)
    (made / "a" / "b" / "file").write_bytes(b"here")
    (made / "a" / "link").symlink_to("b/file")
    (made / "out").symlink_to(tmp_path / "secret")
    (made / "up").symlink_to("..")
    return made


def read(top: Path, name: str) -> bytes:
    with paths.opened(str(top), name) as file:
        return os.read(file, 100)


def test_files_of_a_tree_are_opened(top: Path, tmp_path: Path):
    assert read(top, "a/b/file") == read(top, "a/link") == b"here"
    # How one comes to the tree itself is not its business.
    (tmp_path / "way").symlink_to("top")
    assert read(tmp_path / "way", "a/b/file") == b"here"


@pytest.mark.parametrize("name", ["out", "up/secret", "a/../../secret", "a/b/none", "a/b/file/x"])
def test_nothing_else_is_opened(top: Path, name: str):
    with pytest.raises((errors.Denied, OSError)):
        read(top, name)


def test_a_folder_that_becomes_a_link_meanwhile_is_not_followed(
    top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "file").write_bytes(b"secret")
    checked = os.path.islink

    def swapped(path: str) -> bool:
        found = checked(path)
        (top / "a" / "b").rename(top / "a" / "old")
        (top / "a" / "b").symlink_to(tmp_path / "else")
        return found

    monkeypatch.setattr(os.path, "islink", swapped)
    with pytest.raises(NotADirectoryError):
        read(top, "a/b/file")


def test_a_pipe_is_not_waited_for(top: Path):
    os.mkfifo(top / "pipe")
    with paths.opened(str(top), "pipe") as file:
        assert os.read(file, 1) == b""
    with pytest.raises(errors.Denied, match="regular"):
        paths.read(str(top / "pipe"), 10)


def test_a_step_below_an_open_folder(top: Path):
    folder = os.open(top, os.O_RDONLY)
    try:
        with paths.above(folder, "a/b/file") as (found, last):
            assert (last, os.listdir(f"/proc/self/fd/{found}")) == ("file", ["file"])  # noqa: PTH208
        with pytest.raises(NotADirectoryError), paths.above(folder, "up/secret"):
            pass
    finally:
        os.close(folder)


def test_a_tree_is_walked_in_order(top: Path):
    for name in ("out", "up"):
        (top / name).unlink()
    (top / "a" / "a").write_bytes(b"1")
    found = [(name, facts.st_size) for name, facts in paths.walk(str(top))]
    assert found == [("a/a", 1), ("a/b/file", 4), ("a/link", 4)]


@pytest.mark.parametrize("name", ["out", "up", "nowhere"])
def test_a_tree_with_other_links_is_refused(top: Path, name: str):
    for one in ("out", "up"):
        if one != name:
            (top / one).unlink()
    if name == "nowhere":
        (top / name).symlink_to("none")
    with pytest.raises(errors.Denied, match="leads out"):
        list(paths.walk(str(top)))


def test_a_tree_that_is_too_deep_is_refused(tmp_path: Path):
    (tmp_path / "/".join("x" * 70)).mkdir(parents=True)
    with pytest.raises(errors.Denied, match="deep"):
        list(paths.walk(str(tmp_path)))


@given(st.binary(max_size=40), st.integers(0, 40))
def test_no_more_is_read_than_is_allowed(data: bytes, most: int):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(data)
        if len(data) > most:
            with pytest.raises(errors.TooLarge):
                paths.read(str(path), most)
        else:
            assert paths.read(str(path), most) == data


def test_a_link_is_not_read(top: Path):
    with pytest.raises(OSError, match="symbolic"):
        paths.read(str(top / "out"), 10)


def test_what_a_folder_contains(top: Path, tmp_path: Path):
    assert paths.contains(top, top / "a" / "link")
    assert paths.contains(top, top)
    assert not paths.contains(top, top / "out")
    assert not paths.contains(top, tmp_path / "topmost")


@given(st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=60), st.text())
def test_the_hidden_name_of_a_file_is_always_the_same(name: str, content: str):
    try:
        found = durable.aside(f"/x/{name}", content)
    except UnicodeEncodeError:
        return
    assert found == durable.aside(f"/x/{name}", content)
    assert durable.HIDDEN.fullmatch(found.removeprefix("/x/"))
