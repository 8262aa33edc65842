"""The walls of a jail, without anybody at the door."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.data.export import Bounds, lay, take
from pilotage.data.export.room import Pace, Room
from pilotage.data.export.tree import Tree, steps
from pilotage.data.export.walls import Jail


@given(st.binary(max_size=60).filter(lambda path: b"\0" not in path))
def test_a_path_stays_below(path):
    made = steps(path)
    assert not {b"", b".", b".."} & set(made)
    assert not any(b"/" in step for step in made)
    joined = os.path.normpath(b"/" + path.lstrip(b"/"))
    assert b"/" + b"/".join(made) == joined


@pytest.mark.parametrize("path", [b"a\0b", b"x" * 5000, b"a/" * 200])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(OSError, match=r"Invalid argument|File name too long"):
        steps(path)


def test_no_open_file_is_left(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    jail = Jail(str(tmp_path), ["a/b/c"], Bounds())
    for path in (b"a/b/c", b"a/b/none", b"a/none/c", b"link/a", b"a/b/c/d", b""):
        for work in (jail.names.look, jail.names.listing, jail.names.target, jail.names.remove):
            try:
                jail.do(work, path)
            except OSError:
                continue
    jail.do(jail.files.open, b"a/b/c", os.O_RDONLY, 0)
    jail.close()
    jail.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_nothing_is_done_once_it_is_shut(tmp_path):
    jail = Jail(str(tmp_path), [], Bounds())
    handle = jail.do(jail.files.open, b"a", os.O_RDWR | os.O_CREAT, 0o600)
    jail.close()
    for work in (
        lambda: jail.files.write(handle, 0, b"x"),
        lambda: jail.names.remove(b"a"),
        lambda: jail.files.close(handle),
    ):
        with pytest.raises(OSError, match="shutdown"):
            jail.do(work)


def test_a_jail_is_a_folder_and_not_a_link_to_one(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(NotADirectoryError):
        Tree(str(tmp_path / "link"))
    with pytest.raises(FileNotFoundError):
        Jail(str(tmp_path / "real"), ["no-such-input"], Bounds())


def test_two_names_of_one_file_earn_no_room(tmp_path):
    jail = Jail(str(tmp_path), [], Bounds(entries=3))
    jail.files.close(jail.files.open(b"a", os.O_WRONLY | os.O_CREAT, 0o600))
    jail.names.make_name(b"a", b"b")
    for _ in range(5):
        jail.names.replace(b"a", b"b")
    jail.names.make_folder(b"c", 0o700)
    with pytest.raises(OSError, match="quota"):
        jail.names.make_folder(b"d", 0o700)
    jail.close()


@given(st.lists(st.integers(-100, 100)))
def test_room_is_never_more_than_its_bound(changes):
    room = Room(Bounds(size=150))
    for size in changes:
        with contextlib.suppress(OSError):
            room.grow(size)
        assert 0 <= room.left <= 150


def test_a_pace_lets_a_second_through_at_once():
    now = [100.0]
    pace = Pace(10, lambda: now[0])
    assert [pace.delay() for _ in range(10)] == [0.0] * 10
    assert pace.delay() == pytest.approx(0.1)
    assert pace.delay() == pytest.approx(0.2)
    now[0] += 10
    assert [pace.delay() for _ in range(10)] == [0.0] * 10


# -- what is put in and taken out ----------------------------------------------------------------


def test_inputs_are_links_or_copies(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("a")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/b").write_text("b")
    (tmp_path / "named").symlink_to("a")
    box = tmp_path / "box"
    box.mkdir()
    names = {"a": tmp_path / "a", "deep/t": tmp_path / "tree", "n": tmp_path / "named"}
    assert lay(box, names) == ["a", "deep/t", "n"]
    assert (box / "a").samefile(tmp_path / "a")
    assert (box / "deep/t/b").samefile(tmp_path / "tree/b")
    assert not (box / "n").is_symlink()

    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "elsewhere")

    monkeypatch.setattr(os, "link", refuse)
    lay(box, {"copied": tmp_path / "a"})
    assert (box / "copied").read_text() == "a"
    assert not (box / "copied").samefile(tmp_path / "a")


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "a/../../x", "."])
def test_names_stay_within(tmp_path, name):
    with pytest.raises(errors.UsageError):
        take(tmp_path, name)
    with pytest.raises(errors.UsageError):
        lay(tmp_path, {name: tmp_path})


def test_only_data_is_taken_out(tmp_path):
    box = tmp_path / "box"
    (box / "out/deep").mkdir(parents=True)
    (box / "out/file").write_text("x")
    (box / "out/deep/good").symlink_to("../file")
    assert take(box, "out") == box / "out"
    assert take(box, "out/file") == box / "out/file"
    with pytest.raises(errors.NotFound):
        take(box, "none")
    (box / "behind").symlink_to("out")
    with pytest.raises(errors.Denied):
        take(box, "behind/file")
    for number, text in enumerate(
        (str(tmp_path), str(box / "out/file"), "../../secret", "../out/file", "deep/../../x")
    ):
        link = box / f"out/bad{number}"
        link.symlink_to(text)
        with pytest.raises(errors.Denied):
            take(box, "out")
        with pytest.raises(errors.Denied):
            take(box, f"out/bad{number}")
        link.unlink()
    os.mkfifo(box / "out/pipe")
    with pytest.raises(errors.Denied):
        take(box, "out")


def test_modes_lend_nothing(tmp_path):
    jail = Jail(str(tmp_path), [], Bounds())
    jail.files.close(jail.files.open(b"a", os.O_WRONLY | os.O_CREAT, 0o7000))
    assert stat.S_IMODE(Path(tmp_path, "a").stat().st_mode) == 0o400
    jail.close()
