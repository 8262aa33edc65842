"""Nothing is lost: restarts, overflows, polling, and random work on a tree."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from pilotage.event.file import FileBatch, queue, survey
from pilotage.event.file.model import UNFINISHED
from pilotage.event.model import EventKind
from tests.integration.test_event_file_rig import ALL, WHOLE, Below, Rig, eventually, present
from tests.rigs.project.file_events import Memory


@pytest.fixture
def root(tmp_path):
    path = tmp_path / "root"
    path.mkdir()
    return path


def known_tree(root: Path) -> Memory:
    """Let a source see a tree with two files, and end."""
    (root / "d").mkdir()
    (root / "d" / "one").write_text("1")
    (root / "d" / "two").write_text("2")
    with Rig(root) as rig:
        assert rig.of(root / "d" / "one") == [EventKind.FILE_EXISTING]
        assert rig.of(root / "d") == [EventKind.DIR_EXISTING]
    return rig.memory


def test_an_unchanged_tree_says_nothing(root):
    with Rig(root, memory=known_tree(root)) as rig:
        rig.source.rescan()
        rig.quiet()
        assert rig.said() == []


def test_files_that_came_meanwhile_were_created_and_closed(root):
    memory = known_tree(root)
    (root / "d" / "three").write_text("3")
    (root / "new").mkdir()
    (root / "new" / "four").write_text("4")
    with Rig(root, memory=memory) as rig:
        assert rig.of(root / "d" / "three") == [EventKind.FILE_CREATED, EventKind.FILE_CLOSED]
        assert rig.of(root / "new") == [EventKind.DIR_CREATED]
        assert rig.of(root / "new" / "four") == [EventKind.FILE_CREATED, EventKind.FILE_CLOSED]


def test_files_that_changed_meanwhile_were_modified_and_closed(root):
    memory = known_tree(root)
    (root / "d" / "one").write_text("changed")
    with Rig(root, memory=memory) as rig:
        assert rig.of(root / "d" / "one") == [EventKind.FILE_MODIFIED, EventKind.FILE_CLOSED]
        assert rig.of(root / "d" / "two") == []


def test_files_that_went_meanwhile_were_deleted(root):
    memory = known_tree(root)
    (root / "d" / "one").unlink()
    with Rig(root, memory=memory) as rig:
        assert rig.of(root / "d" / "one") == [EventKind.FILE_DELETED]
        assert set(rig.memory.listing(str(root / "d"))) == {"two"}
    shutil.rmtree(root / "d")
    with Rig(root, memory=memory) as rig:
        assert rig.of(root / "d" / "two") == [EventKind.FILE_DELETED]
        assert rig.of(root / "d") == [EventKind.DIR_DELETED] * 1
        assert rig.memory.listing(str(root)) == {}


def test_files_that_were_moved_meanwhile(root):
    memory = known_tree(root)
    (root / "d" / "one").rename(root / "uno")
    with Rig(root, memory=memory) as rig:
        assert rig.of(root / "uno") == [EventKind.FILE_MOVED]
        assert rig.await_said(EventKind.FILE_MOVED, root / "uno").other == str(root / "d" / "one")
        assert rig.of(root / "d" / "one") == [EventKind.FILE_MOVED_FROM]
    (root / "d").rename(root / "e")
    with Rig(root, memory=memory) as rig:
        assert rig.await_said(EventKind.FILE_MOVED, root / "e/two").other == str(root / "d/two")
        assert rig.await_said(EventKind.DIR_MOVED, root / "e").other == str(root / "d")
        assert rig.of(root / "d") == [EventKind.DIR_MOVED_FROM]


def test_many_new_files_are_not_held_back_for_ever(root, monkeypatch):
    memory = known_tree(root)
    monkeypatch.setattr(survey, "HELD", 10)
    for number in range(50):
        (root / f"{number}").write_text("x")
    with Rig(root, memory=memory) as rig:
        assert len(rig.whole()) == 50


def test_a_crash_in_a_first_scan_leaves_the_rest_existing(root):
    """The row of a directory comes with or after its entries, so that new ground stays new."""
    for number in range(3):
        (root / f"{number}").mkdir()
        (root / f"{number}" / "file").write_text("x")

    class Dying(Memory):
        def put(self, batch: FileBatch) -> None:
            few = FileBatch(batch.events[:3], batch.seen[:3], [], [])
            super().put(few)

    with Rig(root, memory=Dying()) as rig:
        pass
    healthy = Memory()
    healthy.rows = rig.memory.rows
    with Rig(root, memory=healthy) as again:
        told = [event for rigs in (rig, again) for event in rigs.events()]
        for number in range(3):
            kinds = {event.kind for event in told if event.subject == f"{root}/{number}/file"}
            assert kinds == {EventKind.FILE_EXISTING}


def test_ground_passed_before_is_existing_when_a_rule_wants_it(root):
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "file").write_text("x")

    class Deep(Below):
        """Only what is in `root/*/b` matters."""

        def inside(self, directory: str) -> bool:
            return directory.endswith("/b")

        def descend(self, directory: str) -> bool:
            return super().inside(directory) or Below.descend(self, directory)

    memory = Memory()
    rig = Rig(root, memory=memory)
    rig.source._shape = (Deep(str(root)), ALL)
    with rig:
        assert rig.of(root / "a" / "file") == []
        rig.source.reshape(Below(str(root)), ALL)
        assert rig.of(root / "a" / "file") == [EventKind.FILE_EXISTING]


def test_an_unfinished_file_is_taken_up_after_a_restart(root):
    memory = Memory()
    with (root / "half").open("wb", buffering=0) as file, Rig(root, memory=memory) as rig:
        file.write(b"all of it")
        rig.await_said(EventKind.FILE_MODIFIED, root / "half")
        eventually(lambda: "half" in memory.listing(str(root)))
        assert memory.listing(str(root))["half"].mtime_ns == UNFINISHED
    with Rig(root, memory=memory) as again:
        again.await_said(EventKind.FILE_CLOSED, root / "half")


#: Each file is more than one event, so that the kernel drops some.
MOST = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


@pytest.mark.parametrize("many", [MOST, pytest.param(100_000, marks=pytest.mark.soak)])
def test_an_overflow_loses_nothing(root, many):
    for number in range(100):
        (root / f"{number}").mkdir()
    with Rig(root, kinds=WHOLE) as rig:
        with rig.hold():
            for number in range(many):
                handle = os.open(f"{root}/{number % 100}/{number}", os.O_CREAT | os.O_WRONLY)
                os.write(handle, b"x")
                os.close(handle)
        eventually(lambda: len(rig.whole()) == many)
        rig.quiet()
        assert set(rig.whole()) == set(present(root).items())
        assert set(rig.whole().values()) == {1}
        assert any("overflow" in text for text in rig.warnings)


def test_a_full_backlog_is_left_to_the_kernel(root, monkeypatch):
    monkeypatch.setattr(queue, "BACKLOG", 2_000)
    with Rig(root, kinds=WHOLE) as rig:
        for number in range(5_000):
            (root / f"{number}").write_text("x")
        eventually(lambda: len(rig.whole()) == 5_000)


def test_polling_sees_what_happens(root):
    options = {"mode": "poll", "poll_interval": 0.05, "settle": 0.2}
    with Rig(root, **options) as rig:
        (root / "d").mkdir()
        (root / "d" / "file").write_text("x")
        rig.await_said(EventKind.FILE_CLOSED, root / "d/file")
        (root / "d" / "file").write_text("changed")
        eventually(lambda: rig.of(root / "d/file").count(EventKind.FILE_CLOSED) == 2)
        (root / "d" / "file").unlink()
        rig.await_said(EventKind.FILE_DELETED, root / "d/file")
        moved = next(to for number in range(20) if rig_moves(rig, root, to := root / f"m{number}"))
        moved.unlink()
        rig.await_said(EventKind.FILE_DELETED, moved)
        (root / "d").rmdir()
        rig.await_said(EventKind.DIR_DELETED, root / "d")


def rig_moves(rig: Rig, root: Path, to: Path) -> bool:
    """Move a file; say whether it was seen as a move, which a look that began before it is not."""
    file = root / "d" / f"to-{to.name}"
    file.write_text("x")
    rig.await_said(EventKind.FILE_CLOSED, file)
    file.rename(to)
    eventually(lambda: {EventKind.FILE_MOVED, EventKind.FILE_CLOSED} & {*rig.of(to)})
    if EventKind.FILE_MOVED not in rig.of(to):
        return False
    assert rig.await_said(EventKind.FILE_MOVED, to).other == str(file)
    return True


def test_polling_waits_until_a_file_is_still(root):
    with Rig(root, kinds=WHOLE, mode="poll", poll_interval=0.05, settle=0.5) as rig:
        with (root / "slow").open("wb", buffering=0) as file:
            for _ in range(10):
                file.write(b"x")
                time.sleep(0.1)
        assert rig.said() == []
        assert rig.await_said(EventKind.FILE_CLOSED, root / "slow").size == 10
        rig.quiet()
        assert len(rig.events()) == 1


def test_a_file_system_that_hides_changes_is_polled(root, monkeypatch):
    """Let a tmpfs stand for a network file system, beside a root on the disk."""
    monkeypatch.setattr("pilotage.event.file.watches.blind", lambda path: "/dev/shm/" in path)
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as shared,
        Rig(root, shared, kinds=WHOLE, poll_interval=0.05, settle=0.1) as rig,
    ):
        Path(shared, "a").write_text("x")
        (root / "b").write_text("x")
        rig.await_said(EventKind.FILE_CLOSED, f"{shared}/a")
        rig.await_said(EventKind.FILE_CLOSED, root / "b")
        assert list(rig.source._watches.polled) == [shared]


def test_without_watches_left_a_directory_is_polled(root, monkeypatch):
    real = queue.InotifyQueue.watch

    def few(self: queue.InotifyQueue, path: str, mask: int) -> int:
        if "many" in path:
            raise OSError(28, "No space left on device")
        return real(self, path, mask)

    monkeypatch.setattr(queue.InotifyQueue, "watch", few)
    (root / "many").mkdir()
    with Rig(root, kinds=WHOLE, poll_interval=0.05) as rig:
        (root / "many" / "deep").mkdir()
        (root / "many" / "deep" / "a").write_text("x")
        (root / "b").write_text("x")
        rig.await_said(EventKind.FILE_CLOSED, root / "many/deep/a")
        rig.await_said(EventKind.FILE_CLOSED, root / "b")
        assert any("max_user_watches" in text for text in rig.warnings)


def test_a_lease_that_is_refused_falls_back_to_time(root, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(13, "Permission denied")

    monkeypatch.setattr("pilotage.event.file.complete.fcntl.fcntl", refuse)
    (root / "old").write_text("x")
    with Rig(root, kinds=WHOLE, settle=0.2) as rig:
        start = time.monotonic()
        rig.await_said(EventKind.FILE_EXISTING, root / "old")
        assert time.monotonic() - start > 0.05


class Chaos:
    """Random work on a tree, as people and programs do it."""

    def __init__(self, seed: int, root: Path, outside: Path) -> None:
        self.dice = random.Random(seed)
        self.root = str(root)
        self.outside = str(outside)

    def run(self, steps: int) -> None:
        works = [self.write] * 7 + [self.append, self.link, self.delete, self.move_in] * 2
        works += [self.make] * 3 + [self.rename] * 3 + [self.pause]
        works += [self.move_dir, self.remove_dir, self.dir_out, self.dir_in]
        for _ in range(steps):
            try:
                self.dice.choice(works)()
            except (OSError, IndexError):
                # What cannot be done, such as to move a directory into itself, or a file of none.
                continue

    def dirs(self) -> list[str]:
        return [place for place, _, _ in os.walk(self.root)]

    def file(self) -> str:
        return self.dice.choice([f"{p}/{n}" for p, _, names in os.walk(self.root) for n in names])

    def name(self, letter: str = "f", count: int = 12) -> str:
        return f"{self.dice.choice(self.dirs())}/{letter}{self.dice.randrange(count)}"

    def write(self) -> None:
        path = Path(self.name())
        # Writing under one name of a file changes it under all, which no event tells.
        if path.exists() and path.stat().st_nlink > 1:
            path.unlink()
        path.write_bytes(self.dice.randbytes(self.dice.randrange(50)))

    def append(self) -> None:
        path = Path(self.file())
        if path.stat().st_nlink == 1:
            with path.open("ab") as file:
                file.write(b"more")

    def link(self) -> None:
        os.link(self.file(), self.name())

    def delete(self) -> None:
        Path(self.file()).unlink()

    def rename(self) -> None:
        Path(self.file()).rename(self.name())

    def move_in(self) -> None:
        path = Path(self.outside, "file")
        path.write_text("moved in")
        path.rename(self.name())

    def make(self) -> None:
        Path(self.name("d", 4), f"d{self.dice.randrange(3)}").mkdir(parents=True)

    def move_dir(self) -> None:
        Path(self.dice.choice(self.dirs()[1:])).rename(self.name("d", 4))

    def remove_dir(self) -> None:
        shutil.rmtree(self.dice.choice(self.dirs()[1:]))

    def dir_out(self) -> None:
        Path(self.dice.choice(self.dirs()[1:])).rename(f"{self.outside}/{self.dice.random()}")

    def dir_in(self) -> None:
        there = sorted(Path(self.outside).iterdir())
        self.dice.choice(there).rename(self.name("d", 4))

    def pause(self) -> None:
        time.sleep(self.dice.random() * 0.02)


def rows_of(memory: Memory) -> dict[str, str]:
    return {
        f"{place}/{name}": f"{row.inode}-{row.size}-{row.mtime_ns}"
        for place, rows in memory.rows.items()
        for name, row in rows.items()
        if not row.is_dir
    }


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_every_file_fires(tmp_path, root, seed):
    (tmp_path / "outside").mkdir()
    with Rig(root, kinds=ALL if seed % 2 else WHOLE) as rig:
        Chaos(seed, root, tmp_path / "outside").run(300)
        eventually(lambda: set(present(root).items()) <= set(rig.whole()))
        eventually(lambda: rows_of(rig.memory) == present(root))
        rig.quiet(0.1)
        assert rows_of(rig.memory) == present(root)
        # A version fires again only if it had left the name.
        seen: set[tuple[str, str, str]] = set()
        for event in rig.events() if seed % 2 else []:
            if event.kind in {EventKind.FILE_MOVED_FROM, EventKind.FILE_DELETED}:
                seen = {each for each in seen if each[1] != event.subject}
            elif event.kind in WHOLE:
                assert (event.kind, event.subject, event.version) not in seen
                seen.add((event.kind, event.subject, event.version))
    with Rig(root, memory=rig.memory) as again:
        again.quiet(0.1)
        assert again.said() == []


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_while_nobody_looks_every_file_fires(tmp_path, root, seed):
    (tmp_path / "outside").mkdir()
    memory = Memory()
    chaos = Chaos(seed, root, tmp_path / "outside")
    told: set[tuple[str, str]] = set()
    for _ in range(4):
        chaos.run(100)
        with Rig(root, memory=memory) as rig:
            eventually(lambda: rows_of(memory) == present(root))
            told |= set(rig.whole())
            assert set(present(root).items()) <= told
