"""The file source on real directories: kinds, moves, names, links, and what is half-written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from pilotage.event.file import survey
from pilotage.event.model import EventKind
from tests.integration.test_event_file_rig import (
    ALL,
    WHOLE,
    Below,
    Rig,
    eventually,
    present,
    version,
)


@pytest.fixture(params=["disk", "memory"])
def place(request, tmp_path):
    """Return an empty directory, on the disk's file system and on a tmpfs."""
    if request.param == "disk":
        yield tmp_path
        return
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no tmpfs to write to")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        yield Path(path)


@pytest.fixture
def root(place):
    path = place / "root"
    path.mkdir()
    return path


def test_a_written_file_is_created_modified_and_closed(root):
    with Rig(root) as rig:
        (root / "a").write_text("x")
        event = rig.await_said(EventKind.FILE_CLOSED, root / "a")
        assert event.version == version(root / "a")
        assert event.size == 1
        assert event.mtime == pytest.approx((root / "a").stat().st_mtime)
        assert set(rig.of(root / "a")) == {
            EventKind.FILE_CREATED,
            EventKind.FILE_MODIFIED,
            EventKind.FILE_CLOSED,
        }
        (root / "a").unlink()
        rig.await_said(EventKind.FILE_DELETED, root / "a")
        assert rig.memory.listing(str(root)) == {}


def test_only_the_kinds_asked_for_are_told(root):
    with Rig(root, kinds=frozenset({EventKind.FILE_DELETED})) as rig:
        (root / "a").write_text("x")
        (root / "d").mkdir()
        (root / "a").unlink()
        (root / "b").write_text("x")
        eventually(lambda: "b" in rig.memory.listing(str(root)))
        (root / "b").unlink()
        rig.await_said(EventKind.FILE_DELETED, root / "b")
        assert {kind for kind, _ in rig.said()} == {EventKind.FILE_DELETED}


def test_directories_have_their_kinds(root):
    with Rig(root) as rig:
        (root / "d").mkdir()
        rig.await_said(EventKind.DIR_CREATED, root / "d")
        rig.await_said(EventKind.DIR_MODIFIED, root)
        (root / "d").rename(root / "e")
        assert rig.await_said(EventKind.DIR_MOVED, root / "e").other == str(root / "d")
        assert rig.await_said(EventKind.DIR_MOVED_FROM, root / "d").other == str(root / "e")
        (root / "e").rmdir()
        rig.await_said(EventKind.DIR_DELETED, root / "e")
        assert EventKind.DIR_EXISTING in rig.of(root)


def test_a_directory_that_is_not_entered_still_tells_of_changes(root):
    class Flat(Below):
        """Only what is directly in the root matters."""

        def inside(self, directory: str) -> bool:
            return directory in self.roots

    (root / "d").mkdir()
    rig = Rig(root)
    rig.source._shape = (Flat(str(root)), ALL)
    with rig:
        (root / "d" / "file").write_text("x")
        rig.await_said(EventKind.DIR_MODIFIED, root / "d")
        assert rig.of(root / "d" / "file") == []
    (root / "d" / "other").write_text("x")
    again = Rig(root, memory=rig.memory)
    again.source._shape = (Flat(str(root)), ALL)
    with again:
        assert again.said() == [(EventKind.DIR_MODIFIED, str(root / "d"))]


def test_a_file_that_never_lasted_is_not_deleted(root):
    with Rig(root) as rig:
        with rig.hold():
            (root / "short").write_text("x")
            (root / "short").unlink()
            (root / "last").write_text("x")
        rig.await_said(EventKind.FILE_CLOSED, root / "last")
        assert rig.of(root / "short") == []


def test_renames_in_every_direction(place, root):
    outside = place / "outside"
    (root / "in").mkdir()
    outside.mkdir()
    with Rig(root) as rig:
        (root / "a.tmp").write_text("whole")
        (root / "a.tmp").rename(root / "a")
        moved = rig.await_said(EventKind.FILE_MOVED, root / "a")
        assert (moved.other, moved.version) == (str(root / "a.tmp"), version(root / "a"))
        (root / "a").rename(root / "in" / "b")
        assert rig.await_said(EventKind.FILE_MOVED, root / "in" / "b").other == str(root / "a")
        left = rig.await_said(EventKind.FILE_MOVED_FROM, root / "a")
        assert left.other == str(root / "in" / "b")
        (root / "in" / "b").rename(outside / "c")
        assert rig.await_said(EventKind.FILE_MOVED_FROM, root / "in" / "b").other == ""
        (outside / "c").rename(root / "d")
        assert rig.await_said(EventKind.FILE_MOVED, root / "d").other == ""
        rig.quiet()
        assert set(rig.memory.listing(str(root))) == {"d", "in"}
        assert rig.memory.listing(str(root / "in")) == {}


def test_a_rename_onto_a_file_is_a_new_version(root):
    (root / "a").write_text("old")
    with Rig(root, kinds=WHOLE) as rig:
        (root / "new").write_text("newer")
        (root / "new").replace(root / "a")
        rig.await_said(EventKind.FILE_MOVED, root / "a")
        assert rig.whole()[str(root / "a"), version(root / "a")] == 1


def test_a_slow_writer_fires_once(root):
    with Rig(root) as rig:
        with (root / "slow").open("wb", buffering=0) as file:
            for _ in range(8):
                file.write(b"x" * 100)
                time.sleep(0.06)
            assert EventKind.FILE_CLOSED not in rig.of(root / "slow")
        rig.await_said(EventKind.FILE_CLOSED, root / "slow")
        rig.quiet()
        assert rig.of(root / "slow").count(EventKind.FILE_CLOSED) == 1
        assert rig.whole()[str(root / "slow"), version(root / "slow")] == 1


def test_a_file_that_is_open_at_start_waits_for_its_close(root):
    with (root / "half").open("wb", buffering=0) as file:
        file.write(b"half")
        with Rig(root) as rig:
            rig.quiet()
            assert rig.of(root / "half") == []
            file.write(b"other half")
            file.close()
            rig.await_said(EventKind.FILE_EXISTING, root / "half")
            rig.quiet()
            assert {v for p, v in rig.whole() if p == str(root / "half")} == {
                version(root / "half")
            }


def test_a_file_moved_in_while_open_waits_for_its_close(place, root):
    with Rig(root) as rig, (place / "out").open("wb", buffering=0) as file:
        file.write(b"half")
        (place / "out").rename(root / "in")
        rig.quiet()
        assert EventKind.FILE_MOVED not in rig.of(root / "in")
        file.write(b"whole")
        file.close()
        assert rig.await_said(EventKind.FILE_MOVED, root / "in").size == 9


NAMES = [b"a space", b"tab\t, \nline", "grüße 漢字".encode(), b"\xff\xfe", b"-rf", b"'\"$`"]


@pytest.mark.parametrize("name", NAMES)
def test_any_file_name(root, name):
    path = os.fsdecode(os.fsencode(root) + b"/" + name)
    with Rig(root) as rig:
        Path(path).write_text("x")
        rig.await_said(EventKind.FILE_CLOSED, path)
        Path(path + ".d").mkdir()
        inner = f"{path}.d/{os.fsdecode(name)}"
        Path(inner).write_text("x")
        rig.await_said(EventKind.FILE_CLOSED, inner)
    with Rig(root, memory=rig.memory) as again:
        assert again.said() == []


def test_links_count_as_files(place, root):
    (place / "target").write_text("x")
    with Rig(root, kinds=WHOLE) as rig:
        os.link(place / "target", root / "hard")
        (root / "soft").symlink_to(place / "target")
        rig.await_said(EventKind.FILE_CLOSED, root / "hard")
        rig.await_said(EventKind.FILE_CLOSED, root / "soft")
        (root / "dangling").symlink_to(place / "later")
        (root / "folder").symlink_to(place)
        rig.quiet()
        assert rig.of(root / "dangling") == []
        (place / "later").write_text("x")
        rig.await_said(EventKind.FILE_CLOSED, root / "dangling")
        assert not any("folder" in path for _, path in rig.said())


def test_a_hard_link_to_an_open_file_waits(place, root):
    with Rig(root, kinds=WHOLE) as rig:
        with (place / "open").open("wb", buffering=0) as file:
            file.write(b"half")
            os.link(place / "open", root / "link")
            rig.quiet()
            assert rig.said() == []
            file.write(b"whole")
        assert rig.await_said(EventKind.FILE_CLOSED, root / "link").size == 9


def test_a_nameless_file_that_gets_a_name_waits_for_its_close(root):
    with Rig(root, kinds=WHOLE) as rig:
        handle = os.open(root, os.O_TMPFILE | os.O_WRONLY, 0o644)
        os.write(handle, b"half")
        # With a directory given, Python makes the one call that follows the link in /proc.
        os.link(f"/proc/self/fd/{handle}", root / "named", src_dir_fd=handle)
        rig.quiet()
        assert rig.of(root / "named") == []
        os.write(handle, b"whole")
        os.close(handle)
        assert rig.await_said(EventKind.FILE_CLOSED, root / "named").size == 9


def test_setting_the_time_afterwards_makes_no_new_version(place, root):
    (place / "source").write_text("x")
    os.utime(place / "source", ns=(1, 10**18))
    with Rig(root, kinds=WHOLE) as rig:
        shutil.copy2(place / "source", root / "copy")
        rig.await_said(EventKind.FILE_CLOSED, root / "copy")
        eventually(lambda: rig.memory.listing(str(root))["copy"].mtime_ns == 10**18)
        assert rig.of(root / "copy") == [EventKind.FILE_CLOSED]
    with Rig(root, kinds=WHOLE, memory=rig.memory) as again:
        again.quiet()
        assert again.said() == []


def test_deep_directories_lose_nothing(root):
    with Rig(root, kinds=WHOLE) as rig:
        for number in range(200):
            deep = root / f"{number}" / "b" / "c"
            deep.mkdir(parents=True)
            (deep / "file").write_text(str(number))
            (deep.parent / "other").write_text(str(number))
        eventually(lambda: set(present(root).items()) <= set(rig.whole()))
        rig.quiet()
        assert set(rig.whole().values()) == {1}


def test_directories_moved_in_within_and_out(place, root):
    (place / "box" / "inner").mkdir(parents=True)
    (place / "box" / "inner" / "file").write_text("x")
    with Rig(root) as rig:
        (place / "box").rename(root / "one")
        assert rig.await_said(EventKind.FILE_MOVED, root / "one/inner/file").other == ""
        assert rig.await_said(EventKind.DIR_MOVED, root / "one").other == ""
        (root / "one").rename(root / "two")
        moved = rig.await_said(EventKind.FILE_MOVED, root / "two/inner/file")
        assert moved.other == str(root / "one/inner/file")
        rig.await_said(EventKind.FILE_MOVED_FROM, root / "one/inner/file")
        (root / "two/inner/new").write_text("the watch went along")
        rig.await_said(EventKind.FILE_CLOSED, root / "two/inner/new")
        (root / "two").rename(place / "box")
        assert rig.await_said(EventKind.FILE_MOVED_FROM, root / "two/inner/new").other == ""
        rig.quiet()
        (place / "box/inner/unseen").write_text("x")
        rig.quiet()
        assert not any("unseen" in path for _, path in rig.said())
        assert rig.memory.below(str(root)) in ([], [str(root)])
        assert rig.memory.listing(str(root)) == {}


def test_a_directory_removed_and_made_again(root):
    with Rig(root) as rig:
        for number in range(20):
            (root / "d").mkdir()
            (root / "d" / "file").write_text(f"{number}")
            shutil.rmtree(root / "d")
        (root / "d").mkdir()
        (root / "d" / "file").write_text("last")
        eventually(lambda: set(present(root).items()) <= set(rig.whole()))
        rig.quiet()
        assert set(rig.memory.listing(str(root / "d"))) == {"file"}


def test_a_tree_that_is_deleted_says_so_of_each_file(root):
    (root / "d" / "e").mkdir(parents=True)
    (root / "d" / "e" / "file").write_text("x")
    with Rig(root) as rig:
        shutil.rmtree(root / "d")
        rig.await_said(EventKind.FILE_DELETED, root / "d/e/file")
        rig.await_said(EventKind.DIR_DELETED, root / "d/e")
        rig.await_said(EventKind.DIR_DELETED, root / "d")
        assert rig.memory.listing(str(root)) == {}


def test_a_root_that_does_not_exist_yet(place):
    root = place / "not" / "yet" / "there"
    with Rig(root) as rig:
        root.mkdir(parents=True)
        (root / "file").write_text("x")
        rig.await_said(EventKind.FILE_CLOSED, root / "file")
        shutil.rmtree(place / "not")
        rig.await_said(EventKind.FILE_DELETED, root / "file")
        root.mkdir(parents=True)
        (root / "again").write_text("x")
        rig.await_said(EventKind.FILE_CLOSED, root / "again")


def test_a_root_that_is_made_again_and_again(place, root):
    """Its inode number is often the same."""
    with Rig(root, kinds=WHOLE) as rig:
        for number in range(30):
            shutil.rmtree(root)
            root.mkdir()
            (root / f"{number}").write_text("x")
            if number % 3 == 0:
                rig.await_said(EventKind.FILE_CLOSED, root / f"{number}")
        rig.await_said(EventKind.FILE_CLOSED, root / "29")
        eventually(lambda: set(rig.memory.listing(str(root))) == {"29"})


def test_a_root_that_vanishes_while_it_is_scanned_is_missing(root, monkeypatch):
    """A file in it is new when the root is made again, not one that existed before."""
    with Rig(root, kinds=WHOLE) as rig:
        vanished = threading.Event()

        def vanish(path: str, **options: bool) -> survey.DirectoryListing | None:
            if path == str(root) and not vanished.is_set():
                shutil.rmtree(root)
                vanished.set()
            return read(path, **options)

        read = survey.read
        monkeypatch.setattr(survey, "read", vanish)
        shutil.rmtree(root)
        root.mkdir()
        assert vanished.wait(10)
        root.mkdir()
        (root / "new").write_text("x")
        rig.await_said(EventKind.FILE_CLOSED, root / "new")
        eventually(lambda: rig.source.idle)
        assert (EventKind.FILE_EXISTING, str(root / "new")) not in rig.said()


def test_a_root_that_is_a_file_waits_for_a_directory(root):
    root.rmdir()
    root.write_text("x")
    with Rig(root, kinds=WHOLE) as rig:
        root.unlink()
        root.mkdir()
        (root / "new").write_text("x")
        rig.await_said(EventKind.FILE_CLOSED, root / "new")


def test_an_unreadable_root_is_told_of_once_and_tried_again(root, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    (root / "file").write_text("x")
    with monkeypatch.context() as patch:
        patch.setattr("pilotage.event.file.survey.read", refuse)
        rig = Rig(root, poll_interval=0.05)
        with rig:
            rig.source.rescan()
            rig.source.rescan()
            assert rig.warnings == [f"{root} cannot be read: Permission denied"]
            patch.undo()
            rig.await_said(EventKind.FILE_EXISTING, root / "file")


def test_a_root_whose_parent_is_moved_away_and_back(place):
    root = place / "above" / "root"
    root.mkdir(parents=True)
    with Rig(root) as rig:
        (root / "file").write_text("x")
        rig.await_said(EventKind.FILE_CLOSED, root / "file")
        (place / "above").rename(place / "elsewhere")
        rig.await_said(EventKind.FILE_DELETED, root / "file")
        (place / "elsewhere").rename(place / "above")
        rig.await_said(EventKind.FILE_CREATED, root / "file")
        (root / "more").write_text("x")
        rig.await_said(EventKind.FILE_CLOSED, root / "more")


def test_skipped_directories_are_not_entered(root):
    with Rig(root, skip=frozenset({str(root / ".state")})) as rig:
        (root / ".state").mkdir()
        (root / ".state" / "log").write_text("x")
        (root / "seen").write_text("x")
        rig.await_said(EventKind.FILE_CLOSED, root / "seen")
        rig.quiet()
        assert rig.of(root / ".state" / "log") == []


def test_one_directory_under_two_roots_tells_both(place, root):
    (place / "alias").symlink_to(root)
    with Rig(root, place / "alias", kinds=WHOLE, poll_interval=0.1) as rig:
        (root / "file").write_text("x")
        rig.await_said(EventKind.FILE_CLOSED, root / "file")
        rig.await_said(EventKind.FILE_CLOSED, place / "alias" / "file")


def test_new_ground_is_taken_while_running(place, root):
    other = place / "other"
    other.mkdir()
    (other / "old").write_text("x")
    (root / "mine").write_text("x")
    with Rig(root) as rig:
        rig.source.reshape(Below(str(root), str(other)), rig.source._shape[1])
        rig.await_said(EventKind.FILE_EXISTING, other / "old")
        (other / "new").write_text("x")
        rig.await_said(EventKind.FILE_CLOSED, other / "new")
        assert rig.of(root / "mine") == [EventKind.FILE_EXISTING]
        rig.source.reshape(Below(str(other)), WHOLE)
        assert rig.memory.below(str(root)) == []
        (root / "unseen").write_text("x")
        (other / "seen").write_text("x")
        rig.await_said(EventKind.FILE_CLOSED, other / "seen")
        assert rig.of(root / "unseen") == []


def test_the_signal_of_a_broken_lease_kills_nobody(root):
    """Open files for writing as fast as the source asks for leases on them."""
    code = (
        "import os, sys\n"
        "for i in range(3000):\n"
        "    f = os.open(sys.argv[1], os.O_WRONLY)\n"
        "    os.write(f, b'x')\n"
        "    os.close(f)\n"
    )
    (root / "file").write_text("x")
    with Rig(root, kinds=WHOLE) as rig:
        writer = subprocess.Popen([sys.executable, "-c", code, str(root / "file")])
        while writer.poll() is None:
            rig.source.rescan()
        assert writer.returncode == 0
        eventually(lambda: set(present(root).items()) <= set(rig.whole()))


def test_a_closed_file_is_put_within_milliseconds(root):
    with Rig(root, kinds=WHOLE) as rig:
        delays = []
        for number in range(50):
            (root / f"{number}").write_text("x")
            start = time.monotonic()
            while str(root / f"{number}") not in {path for path, _ in rig.whole()}:
                time.sleep(0.0002)
            delays.append(time.monotonic() - start)
        # The median, since the machine may be busy with something else.
        assert sorted(delays)[25] < 0.02
