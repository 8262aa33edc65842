"""The decisions of the file source, without a file system."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.event.file.bits import (
    CAME,
    CHANGED,
    CLOSED,
    DELETED,
    EXISTED,
    FRESH,
    IS_DIR,
    LEFT,
    MADE,
    WHOLE,
    dir_kinds,
    file_kinds,
    file_mask,
)
from pilotage.event.file.marks import Marks, decode
from pilotage.event.file.model import Entry, FileBatch, join, split, within
from pilotage.event.file.outbox import Outbox
from pilotage.event.file.source import outermost
from pilotage.event.file.survey import Pairs, diff
from pilotage.event.file.watches import Role, Tree, is_blind, read_mounts, type_of
from pilotage.event.model import EventKind
from pilotage.testing.clock import ManualClock
from tests.rigs.project.file_events import Memory

ALL = frozenset(EventKind)
FILE = Entry(False, 7, 3, 1_000_000_000)


def record(number: int, mask: int, name: bytes = b"", cookie: int = 0) -> bytes:
    padded = name + b"\0" * (-len(name) % 16 or 16) if name else b""
    return struct.pack("iIII", number, mask, cookie, len(padded)) + padded


def gathered(*records: bytes) -> Marks:
    marks = Marks(lambda *_: None)
    marks.gather(b"".join(records))
    return marks


def test_one_read_makes_one_set_of_bits_a_name():
    marks = gathered(record(1, MADE, b"a"), record(1, CHANGED, b"a"), record(1, CLOSED, b"a"))
    assert marks.names == {1: {b"a": FRESH | MADE | CHANGED | CLOSED}}


def test_what_was_before_a_deletion_does_not_count_after_it():
    marks = gathered(record(1, CLOSED, b"a"), record(1, DELETED, b"a"), record(1, MADE, b"a"))
    assert marks.names[1][b"a"] == DELETED | MADE


def test_the_halves_of_a_move_are_paired_and_completeness_goes_along():
    marks = gathered(
        record(1, MADE, b"tmp"),
        record(1, CLOSED, b"tmp"),
        record(1, LEFT, b"tmp", 9),
        record(2, CAME, b"final", 9),
    )
    assert marks.names[2][b"final"] == FRESH | CAME | WHOLE
    assert marks.origins[2, b"final"] == (1, b"tmp")
    assert [to for _, to in marks.left] == [(2, b"final")]
    assert marks.names[1] == {}


def test_half_a_move_waits_for_the_other():
    marks = gathered(record(1, LEFT, b"a", 9))
    assert marks.left == []
    assert marks.due() is not None
    marks.gather(record(1, CAME, b"b", 9))
    assert marks.due() is None
    assert len(marks.left) == 1


def test_an_overflow_stops_the_gathering_there():
    before = record(1, MADE, b"a") + struct.pack("iIII", -1, 0x4000, 0, 0)
    marks = Marks(lambda *_: None)
    assert marks.gather(before + record(1, MADE, b"b")) == len(before)
    assert marks.overflowed
    assert list(marks.names[1]) == [b"a"]


def test_directories_go_elsewhere_in_order():
    told = []
    marks = Marks(lambda number, mask, _, raw: told.append((number, mask & ~IS_DIR, raw)))
    marks.gather(record(1, MADE | IS_DIR, b"d") + record(1, DELETED | IS_DIR, b"d"))
    assert told == [(1, MADE, b"d"), (1, DELETED, b"d")]
    assert not marks.names


@given(st.binary(min_size=1).filter(lambda raw: b"\0" not in raw and b"/" not in raw))
def test_every_name_survives(raw):
    (name,) = gathered(record(1, CLOSED, raw)).names[1]
    assert decode(name).encode("utf-8", "surrogateescape") == raw


ENTRIES = st.dictionaries(
    st.sampled_from("abcdef"), st.builds(Entry, st.booleans(), *[st.integers(0, 2)] * 3)
)


@given(ENTRIES, ENTRIES, st.sets(st.sampled_from("abcdef")))
def test_a_difference_turns_one_into_the_other(known, found, unread):
    found = {n: e for n, e in found.items() if not e.is_dir and n not in unread}
    difference = diff(known, found, unread)
    files = {n: e for n, e in known.items() if not e.is_dir}
    kept = {n: e for n, e in files.items() if n not in difference.missing}
    after = kept | difference.new | difference.changed
    assert {n: e for n, e in after.items() if n not in unread} == found
    assert not difference.new.keys() & files.keys()


def test_pairs_are_found_by_inode_size_and_time():
    pairs = Pairs()
    pairs.gone("/a", "x", FILE)
    pairs.gone("/a", "y", FILE)
    pairs.gone("/a", "d", Entry(True, 8, 2, 5))
    assert pairs.came(Entry(False, 7, 3, 2)) is None
    assert pairs.came(FILE) == ("/a", "y")
    assert pairs.came(Entry(True, 8, 1, 0)) == ("/a", "d")
    assert pairs.rest() == [("/a", "x", False)]


def test_kinds_and_masks_follow_what_is_wanted():
    wanted = frozenset({EventKind.FILE_CLOSED, EventKind.DIR_CREATED})
    assert file_kinds(wanted)[MADE | CHANGED | CLOSED] == (EventKind.FILE_CLOSED,)
    assert dir_kinds(wanted)[MADE] == (EventKind.DIR_CREATED,)
    assert not file_mask(wanted) & CHANGED
    assert file_mask(ALL) & CHANGED


@pytest.fixture
def memory():
    return Memory()


@pytest.fixture
def outbox(memory):
    return Outbox(memory, ManualClock(5.0), ALL)


def test_an_event_goes_with_its_row(memory, outbox):
    outbox.file(MADE | CLOSED, "/d", "f", FILE, whole=True)
    outbox.send()
    (batch,) = memory.batches
    assert [(e.kind, e.subject, e.version, e.time) for e in batch.events] == [
        (EventKind.FILE_CREATED, "/d/f", "7-3-1000000000", 5.0),
        (EventKind.FILE_CLOSED, "/d/f", "7-3-1000000000", 5.0),
    ]
    assert batch.seen == [("/d", "f", False, 7, 3, 1_000_000_000)]


def test_nothing_is_said_twice_until_the_queue_is_past_it(memory, outbox):
    outbox.file(MADE | CLOSED, "/d", "f", FILE, whole=True)
    outbox.file(MADE | CLOSED, "/d", "f", FILE, whole=True)
    outbox.turn()
    outbox.file(CLOSED, "/d", "f", FILE, whole=True)
    outbox.send()
    assert len(memory.events()) == 2
    assert len(memory.batches[0].seen) == 3
    outbox.file(CLOSED, "/d", "f", Entry(False, 7, 4, 2), whole=True)
    outbox.forget()
    outbox.file(EXISTED, "/d", "f", FILE, whole=True)
    outbox.send()
    assert len(memory.events()) == 4


def test_what_a_scan_found_gone_is_not_deleted_again(memory, outbox):
    outbox.lost(DELETED, "/nowhere", "f", is_dir=False, stale=True)
    outbox.lost(DELETED, "/nowhere", "f", is_dir=False, stale=False)
    outbox.send()
    assert [event.kind for event in memory.events()] == [EventKind.FILE_DELETED]
    assert memory.batches[0].gone == [("/nowhere", "f")]


def test_a_batch_applies_trees_first_and_rows_last(memory):
    memory.put(FileBatch([], [("/d", "f", False, 1, 1, 1), ("/d/e", "g", False, 1, 1, 1)], [], []))
    memory.put(FileBatch([], [("/d", "f", False, 2, 2, 2)], [("/d", "f")], ["/d"]))
    assert memory.listing("/d") == {"f": Entry(False, 2, 2, 2)}
    assert memory.below("/d") == ["/d"]


def test_a_moved_directory_takes_its_labels_along():
    tree = Tree()
    tree.add("/r", 1, Role.FULL)
    top = tree.add("/r/a", 2, Role.FULL)
    tree.add("/r/a/b", 3, Role.FULL)
    tree.detach(top)
    assert sorted(tree.by_path) == ["/r"]
    tree.attach(top, "/r/z")
    assert {path: node.number for path, node in tree.by_path.items()} == {
        "/r": 1,
        "/r/z": 2,
        "/r/z/b": 3,
    }
    assert tree.forget(tree.by_path["/r"]) == [1, 2, 3]


def test_a_directory_found_again_under_its_number_outlives_its_burial():
    tree = Tree()
    old = tree.add("/r", 1, Role.FULL)
    tree.bury(old)
    new = tree.add("/r", 1, Role.FULL)
    assert tree.forget(old) == []
    assert tree.by_number[1] is new is tree.by_path["/r"]


TABLE = r"""22 1 8:1 / / rw,relatime - ext4 /dev/sda rw
23 22 0:5 / /home rw - nfs4 server:/home rw
24 22 0:6 / /mnt/with\040space rw shared:1 - fuse.sshfs host: rw
25 22 0:7 / /mnt/with\040space/local rw - xfs /dev/sdb rw
26 22 0:8 / /win rw - fuseblk /dev/sdc rw
"""


@pytest.mark.parametrize(
    "path, kind, blind",
    [
        ("/etc", "ext4", False),
        ("/home/user/x", "nfs4", True),
        ("/homes", "ext4", False),
        ("/mnt/with space/a", "fuse.sshfs", True),
        ("/mnt/with space/local/a", "xfs", False),
        ("/win", "fuseblk", False),
        ("/", "ext4", False),
    ],
)
def test_the_file_system_of_a_path(path, kind, blind):
    assert type_of(path, read_mounts(TABLE)) == kind
    assert is_blind(kind) == blind


def test_paths():
    assert join("/", "a") == "/a"
    assert join("/a", "b") == "/a/b"
    assert split("/a/b") == ("/a", "b")
    assert split("/a") == ("/", "a")
    assert within("/a/b", "/a")
    assert within("/a", "/")
    assert not within("/ab", "/a")
    assert outermost(("/b/c", "/a", "/b", "/a-b")) == ["/a", "/a-b", "/b"]
