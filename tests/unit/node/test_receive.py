"""Content that arrives at a site: whole, cut, corrupted, twice."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotage.data.stage import plan
from pilotage.node.login import cache
from pilotage.node.login.receive import Receiver
from tests.unit.data.test_stage_plan import STEP, hasher


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    before, cache.STEP = cache.STEP, STEP
    yield
    cache.STEP = before


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def record(content: bytes, *, late: bool = False, **facts) -> bytes:
    sha = digest(content)
    head: dict[str, Any] = {
        "name": sha,
        "digest": None if late else sha,
        "size": len(content),
        "part": None,
    }
    head |= {"spans": plan.whole(len(content)), "names": []}
    head |= facts
    data = b"".join(content[at : at + length] for at, length in head["spans"])
    end = json.dumps({"digest": sha}).encode() + b"\n" if late else b""
    return json.dumps(head).encode() + b"\n" + data + end


def place(root: Path, content: bytes) -> Path:
    return Path(cache.place(str(root), digest(content)))


def receive(root: Path, stream: bytes) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = []
    Receiver(str(root), io.BytesIO(stream), answers.append).run()
    return answers


def kept(root: Path) -> dict[str, bytes]:
    found = {}
    for path in root.glob("cache/*/*"):
        if "." not in path.name:
            found[path.name] = path.read_bytes()
            assert digest(found[path.name]) == path.name
            assert path.stat().st_mode & 0o777 == 0o444
    return found


def parts(root: Path) -> list[Path]:
    return list(root.glob("cache/*/*.part"))


@pytest.fixture
def root(tmp_path):
    return tmp_path


@pytest.mark.parametrize("late", [False, True])
def test_files_arrive_one_after_another(root, late):
    files = [b"", b"one", b"two" * 1000, os.urandom(3 << 20)]
    answers = receive(root, b"".join(record(one, late=late) for one in files))
    assert sorted(one["digest"] for one in answers) == sorted(map(digest, files))
    assert all(one["ok"] for one in answers)
    assert sorted(kept(root).values()) == sorted(files)
    assert not parts(root)


def test_what_is_not_as_announced_is_not_kept(root):
    good, bad = b"good" * 9, record(b"bad" * 9).replace(b"bad", b"sad")
    answers = receive(root, bad + record(good))
    assert [(one["ok"], one.get("kind")) for one in answers] == [(False, "mismatch"), (True, None)]
    assert list(kept(root).values()) == [good]
    assert not parts(root)


@settings(max_examples=60)
@given(st.lists(st.binary(min_size=1, max_size=80), min_size=1, max_size=3), st.data())
def test_a_stream_that_is_cut_anywhere_is_gone_on_with(files, data):
    files = list(dict.fromkeys(files))
    late = data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for _ in range(3):
            stream = b"".join(_rest(root, one, late=late) for one in files)
            receive(root, stream[: data.draw(st.integers(0, len(stream)))])
            # Nothing wrong is ever there: `kept` checks each.
            assert set(kept(root).values()) <= set(files)
        receive(root, b"".join(_rest(root, one, late=late) for one in files))
        assert set(kept(root).values()) == set(files)
        assert not parts(root)


def _rest(root: Path, content: bytes, *, late: bool) -> bytes:
    """Send what is not there, as the hub does."""
    sha = digest(content)
    had = cache.have(str(root), [sha])
    if had["have"]:
        return b""
    if part := had["parts"].get(sha):
        known = plan.BlockSums(part["size"], part["step"], part["blocks"])
        spans = plan.resume(len(content), known, hasher(content))
        return record(content, late=late, part=part["part"], spans=spans)
    return record(content, late=late)


def test_a_part_that_was_spoiled_is_not_believed(root):
    content = os.urandom(10 * STEP)
    receive(root, record(content)[:-STEP])
    (part,) = parts(root)
    part.write_bytes(os.urandom(9 * STEP))
    answers = receive(root, record(content, part=part.name, spans=[(9 * STEP, STEP)]))
    assert answers[0]["kind"] == "mismatch"
    assert not kept(root)
    assert not parts(root)
    assert receive(root, record(content))[0]["ok"]


def test_what_the_site_lacks_is_said_and_the_rest_is_understood(root):
    lost = record(b"y" * 20, part=f"{digest(b'y' * 20)}.ab.part", spans=[(8, 12)])
    holes = record(b"z" * 20, spans=[(0, 10)])
    twice = record(b"w" * 20, spans=[(0, 15), (10, 10)])
    answers = receive(root, lost + holes + twice + record(b"good"))
    assert [one.get("kind") for one in answers] == ["part", "usage", "usage", None]
    assert list(kept(root).values()) == [b"good"]


def test_two_that_bring_the_same_disturb_nobody(root):
    content = os.urandom(6 << 20)
    answers: list[dict[str, Any]] = []
    threads = [
        threading.Thread(target=lambda: answers.extend(receive(root, record(content))))
        for _ in range(4)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [one["ok"] for one in answers] == [True] * 4
    assert kept(root) == {digest(content): content}
    assert not parts(root)


def test_a_full_disk_is_said_and_what_arrived_stays(root, monkeypatch):
    content = os.urandom(3 << 20)
    real, left = os.write, [2 << 20]

    def write(file, data):
        if left[0] < len(data):
            raise OSError(28, "No space left on device")
        left[0] -= len(data)
        return real(file, data)

    monkeypatch.setattr("pilotage.node.login.receive.os.write", write)
    answers = receive(root, record(content) + record(b"more"))
    monkeypatch.undo()
    assert [(one["ok"], one["kind"]) for one in answers] == [(False, "disk")]
    assert "No space left" in answers[0]["words"]
    (part,) = parts(root)
    assert part.stat().st_size == 2 << 20
    known = plan.BlockSums(**cache.sums(str(part)))
    spans = plan.resume(len(content), known, hasher(content))
    assert spans == [(2 << 20, 1 << 20)]
    assert receive(root, record(content, part=part.name, spans=spans))[0]["ok"]
    assert kept(root) == {digest(content): content}


def test_a_disk_without_room_is_not_filled(root, monkeypatch):
    free = os.statvfs(root)
    few = os.statvfs_result((*free[:4], 1, *free[5:]))
    monkeypatch.setattr("pilotage.node.login.receive.os.statvfs", lambda _: few)
    answers = receive(root, record(os.urandom(1 << 20)))
    assert answers[0]["kind"] == "disk"
    assert not parts(root)


@pytest.mark.parametrize("name", ["", "..", "a" * 63, "A" * 64, "../" + "a" * 61, "a" * 64 + "\n"])
def test_names_that_are_no_digests_are_refused(root, name):
    with pytest.raises(ValueError, match="no digest"):
        cache.place(str(root), name)
    with pytest.raises(ValueError, match="is no"):
        cache.part(str(root), "a" * 64, f"{name}.ab.part")


def test_a_name_stands_for_what_is_there(root):
    receive(root, record(b"content", names=["a" * 64]))
    assert cache.have(str(root), ["a" * 64])["same"] == {"a" * 64: digest(b"content")}
    place(root, b"content").unlink()
    assert cache.have(str(root), ["a" * 64]) == {"have": [], "same": {}, "parts": {}}


def test_what_was_used_longest_ago_goes_first(root):
    now = time.time()
    files = {name: name.encode() * 100 for name in "abcd"}
    receive(root, b"".join(map(record, files.values())))
    where = {name: place(root, one) for name, one in files.items()}
    for age, name in enumerate("dcba"):
        os.utime(where[name], (now - 5000 + age, now))
    (root / "s").mkdir()
    os.link(where["d"], root / "s" / "d")
    cache.use(str(root), digest(files["c"]))
    assert cache.sweep(str(root), 300) == {"evicted": 1, "freed": 100, "size": 300}
    assert [name for name in "abcd" if where[name].exists()] == ["a", "c", "d"]
    # One is linked by a submission, one was used lately.
    assert cache.sweep(str(root), 0) == {"evicted": 1, "freed": 100, "size": 200}
    assert [name for name in "abcd" if where[name].exists()] == ["c", "d"]
    assert cache.sweep(str(root), 0)["evicted"] == 0


def test_old_parts_and_names_go(root):
    receive(root, record(b"here", names=["b" * 64]))
    receive(root, record(b"gone" * 9, names=["c" * 64]) + record(b"cut" * 9)[:-3])
    place(root, b"gone" * 9).unlink()
    old = time.time() - 10 * cache.PART_S
    assert cache.sweep(str(root), 1 << 30)["freed"] == 0
    for path in root.glob("cache/*/*.*"):
        os.utime(path, (old, old))
    cache.sweep(str(root), 1 << 30)
    assert [path.name for path in root.glob("cache/*/*.*")] == ["b" * 64 + ".is"]
    assert kept(root)


def test_blocks_of_a_huge_file_are_larger(root, monkeypatch):
    monkeypatch.setattr(cache, "MOST_BLOCKS", 4)
    path = root / "huge"
    path.write_bytes(random.Random(1).randbytes(10 * STEP))
    found = cache.sums(str(path))
    assert (found["step"], len(found["blocks"])) == (4 * STEP, 2)
