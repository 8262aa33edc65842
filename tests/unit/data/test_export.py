"""The folder of an export, before and after it is served."""

from __future__ import annotations

import os
import stat

import pytest

from pilotage.base import errors
from pilotage.data.export import lay, reclaim, remove, take
from pilotage.data.export.sandbox import options
from pilotage.data.export.serve import count


def test_inputs_are_shown_and_not_put_there(tmp_path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "named").symlink_to("a")
    box = tmp_path / "box"
    box.mkdir()
    layout = lay(box, {"deep/a": tmp_path / "a", "n": tmp_path / "named"})
    assert layout.inputs == {"deep/a": tmp_path / "a", "n": tmp_path / "a"}
    # Only an empty file, on which the input is mounted.
    assert (box / "deep/a").read_text() == ""
    assert not (box / "deep/a").samefile(tmp_path / "a")
    assert not (box / "n").is_symlink()
    argv = options([], layout)
    assert argv[argv.index("/data/n") - 2 :][:2] == ["--ro-bind", str(tmp_path / "a")]


def test_only_regular_files_are_inputs(tmp_path):
    """A pipe could be written to, even if it is mounted read-only."""
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(errors.Denied, match="not a regular file"):
            lay(tmp_path, {"a": tmp_path / name})


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "a/../../x", "."])
def test_names_stay_within(tmp_path, name):
    with pytest.raises(errors.UsageError):
        take(tmp_path, name)
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.UsageError):
        lay(tmp_path, {name: tmp_path / "file"})


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


def test_what_is_left_can_be_read_and_removed_and_lends_no_rights(tmp_path):
    box = tmp_path / "box"
    (box / "d/deep").mkdir(parents=True)
    (tmp_path / "outside").write_text("")
    (tmp_path / "outside").chmod(0o4755)
    for name, mode in (("d/deep/file", 0o6777), ("none", 0o000)):
        (box / name).write_text("x")
        (box / name).chmod(mode)
    (box / "link").symlink_to(tmp_path / "outside")
    (box / "d/deep").chmod(0o2000)
    (box / "d").chmod(0)
    reclaim(box)
    modes = {name: stat.S_IMODE((box / name).stat().st_mode) for name in ("d", "d/deep", "none")}
    assert modes == {"d": 0o700, "d/deep": 0o700, "none": 0o400}
    assert stat.S_IMODE((box / "d/deep/file").stat().st_mode) == 0o777
    assert stat.S_IMODE((tmp_path / "outside").stat().st_mode) == 0o4755
    remove(box)
    assert not box.exists()
    assert (tmp_path / "outside").exists()
    reclaim(box)
    remove(box)


def test_entries_are_counted_up_to_a_bound(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/c").write_text("")
    (tmp_path / "a/link").symlink_to("/")
    assert count(str(tmp_path), 10) == 4
    assert count(str(tmp_path), 2) > 2
    assert count(str(tmp_path / "none"), 2) == 0
    assert count(str(tmp_path) + "/x" * 3000, 2) == 3
