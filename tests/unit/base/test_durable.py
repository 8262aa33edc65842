"""Durable files: whatever fails, wherever a process dies, the old content is there or the new."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import durable

OLD, NEW = b"old", b"new, and longer"
_DIE = """
import sys
from pilotage.base import durable
act, *paths = sys.argv[1:]
if act == "rename":
    durable.rename(*paths)
else:
    getattr(durable, act)(*paths, b"new, and longer")
"""


def listed(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir()]


def visible(folder: Path) -> set[str]:
    return {name for name in listed(folder) if not durable.HIDDEN.fullmatch(name)}


def refuse(number: int) -> Callable[..., None]:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return refused


@given(st.binary(max_size=1000), st.binary(max_size=1000))
def test_a_file_is_made_and_replaced(first: bytes, second: bytes):
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "file"
        for data in (first, second):
            durable.write(path, data)
            assert path.read_bytes() == data
        durable.swap(path, first)
        assert path.read_bytes() == first
        assert listed(Path(name)) == ["file"]


def test_text_is_utf_8(tmp_path: Path):
    durable.write(tmp_path / "file", "é\r\n")
    assert (tmp_path / "file").read_bytes() == b"\xc3\xa9\r\n"


def test_a_name_of_the_greatest_length(tmp_path: Path):
    durable.write(tmp_path / ("x" * 255), NEW)
    durable.create(tmp_path / ("y" * 255), NEW)
    assert len(listed(tmp_path)) == 2


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    durable.write("file", NEW)
    durable.folder("a/b")
    durable.remove("file")
    assert listed(tmp_path) == ["a"]


def test_the_mode_is_given_or_stays(tmp_path: Path):
    path = tmp_path / "file"
    durable.write(path, OLD, mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o661)
    durable.write(path, NEW)
    assert stat.S_IMODE(path.stat().st_mode) == 0o661
    durable.write(path, NEW, mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_is_replaced_and_not_followed(tmp_path: Path):
    (tmp_path / "other").write_bytes(OLD)
    (tmp_path / "link").symlink_to("other")
    durable.write(tmp_path / "link", NEW)
    assert (tmp_path / "other").read_bytes() == OLD
    assert (tmp_path / "link").read_bytes() == NEW


@pytest.mark.parametrize("taken", ["file", "link"])
def test_a_name_that_is_taken_is_not_created(tmp_path: Path, taken: str):
    path = tmp_path / "file"
    if taken == "file":
        path.write_bytes(OLD)
    else:
        path.symlink_to("nowhere")
    with pytest.raises(FileExistsError):
        durable.create(path, NEW)
    assert listed(tmp_path) == ["file"]
    assert path.is_symlink() or path.read_bytes() == OLD


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP])
def test_a_file_system_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
):
    monkeypatch.setattr(os, "link", refuse(number))
    durable.create(tmp_path / "file", NEW)
    with pytest.raises(FileExistsError):
        durable.create(tmp_path / "file", OLD)
    assert (tmp_path / "file").read_bytes() == NEW
    assert listed(tmp_path) == ["file"]


@pytest.mark.parametrize("act", [durable.write, durable.create])
@pytest.mark.parametrize("call", ["open", "fsync", "replace", "link"])
def test_an_error_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[..., None], call: str
):
    used = {durable.write: {"open", "fsync", "replace"}, durable.create: {"open", "fsync", "link"}}
    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse(errno.ENOSPC))
        if call in used[act]:
            with pytest.raises(OSError, match="No space"):
                act(tmp_path / "file", NEW)
            assert listed(tmp_path) == []
        else:
            act(tmp_path / "file", NEW)
    durable.write(tmp_path / "file", NEW)
    assert listed(tmp_path) == ["file"]


def test_everything_is_flushed_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []
    flush, replace = os.fsync, os.replace

    def flushing(file: int) -> None:
        seen.append("folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "file")
        flush(file)

    def replacing(*given: str) -> None:
        seen.append("replace")
        replace(*given)

    monkeypatch.setattr(os, "fsync", flushing)
    monkeypatch.setattr(os, "replace", replacing)
    durable.write(tmp_path / "file", NEW)
    durable.swap(tmp_path / "file", OLD)
    assert seen == ["file", "replace", "folder", "replace"]
    seen.clear()
    durable.create(tmp_path / "another", NEW)
    durable.folder(tmp_path / "a" / "b")
    durable.remove(tmp_path / "file")
    durable.remove(tmp_path / "file")
    assert seen == ["file", "folder", "folder", "folder", "folder"]


def test_an_exact_mode_is_not_changed_by_the_umask(tmp_path):
    old = os.umask(0o077)
    try:
        durable.swap(tmp_path / "less", OLD, mode=0o644)
        durable.swap(tmp_path / "exact", OLD, exact=0o644)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "less").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "exact").stat().st_mode) == 0o644


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EACCES])
def test_a_folder_that_cannot_be_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
):
    monkeypatch.setattr(os, "fsync", refuse(number))
    durable.sync_folder(tmp_path)


def test_a_disk_that_fails_is_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "part").write_bytes(NEW)
    monkeypatch.setattr(os, "fsync", refuse(errno.EIO))
    for act in (durable.sync_folder, durable.sync_file):
        with pytest.raises(OSError, match="Input/output"):
            act(tmp_path)
    with pytest.raises(OSError, match="Input/output"):
        durable.rename(tmp_path / "part", tmp_path / "file")


def test_a_folder_is_made_with_those_above_it(tmp_path: Path):
    durable.folder(tmp_path / "a" / "b" / "c", mode=0o700)
    durable.folder(tmp_path / "a" / "b" / "c")
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    (tmp_path / "file").write_bytes(b"")
    for name in ("file", "file/x"):
        with pytest.raises((FileExistsError, NotADirectoryError)):
            durable.folder(tmp_path / name)


# -- processes that die ----------------------------------------------------------------------------


def die(point: str, act: str, *paths: Path) -> None:
    command = [sys.executable, "-c", _DIE, act, *map(str, paths)]
    done = subprocess.run(command, env={**os.environ, "PILOTAGE_CRASH_AT": point}, check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("point", durable.POINTS)
def test_a_crash_leaves_the_old_content_or_the_new(tmp_path: Path, point: str):
    path = tmp_path / "file"
    path.write_bytes(OLD)
    die(point, "write", path)
    early = point in {"durable.written", "durable.flushed"}
    assert path.read_bytes() == (OLD if early else NEW)
    assert visible(tmp_path) == {"file"}


@pytest.mark.parametrize("point", durable.POINTS)
def test_a_crash_leaves_no_part_of_a_new_file(tmp_path: Path, point: str):
    path = tmp_path / "file"
    die(point, "create", path)
    early = point in {"durable.written", "durable.flushed"}
    assert visible(tmp_path) == (set() if early else {"file"})
    if early:
        durable.create(path, NEW)
    assert path.read_bytes() == NEW


@pytest.mark.parametrize("point", ["durable.renamed", "durable.kept"])
def test_a_crash_after_a_rename(tmp_path: Path, point: str):
    (tmp_path / "part").write_bytes(NEW)
    die(point, "rename", tmp_path / "part", tmp_path / "file")
    assert visible(tmp_path) == {"file"}
