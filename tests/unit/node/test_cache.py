"""What a pilot keeps of what jobs read: once, for as long as it is used, up to a limit."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from pathlib import Path

import pytest

from pilotage.node.data.cache import Cache, UnsafeError, part, shared


def _never() -> None:
    """Let whoever waits go on."""


def _bring(cache: Cache, name: str, size: int = 10) -> None:
    path = Path(cache.path(name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    cache.keep(name, size)


def test_what_was_used_longest_ago_goes_first_and_what_is_in_use_stays(tmp_path):
    cache = Cache(str(tmp_path), 25)
    for name in ("aa", "bb"):
        assert not cache.use(name, _never)
        _bring(cache, name)
    cache.release("aa")
    cache.release("bb")
    assert cache.use("aa", _never)
    # `aa` was used last, and is in use: `bb` goes.
    assert not cache.use("cc", _never)
    _bring(cache, "cc")
    there = {name for name in ("aa", "bb", "cc") if Path(cache.path(name)).exists()}
    assert there == {"aa", "cc"}
    assert not cache.use("dd", _never)
    _bring(cache, "dd", 100)
    # All of it is in use, so all of it stays, whatever the limit.
    assert Path(cache.path("aa")).exists()
    for name in ("aa", "cc", "dd"):
        cache.release(name)
    assert not any(Path(cache.path(name)).exists() for name in ("aa", "cc", "dd"))


def test_two_that_ask_for_the_same_bring_it_once(tmp_path):
    cache = Cache(str(tmp_path), 100)
    assert not cache.use("aa", _never)
    found: list[bool] = []
    other = threading.Thread(target=lambda: found.append(cache.use("aa", _never)))
    other.start()
    _bring(cache, "aa")
    other.join()
    assert found == [True]


def test_who_waits_for_what_cannot_be_brought_may_try_or_give_up(tmp_path):
    cache = Cache(str(tmp_path), 100)
    assert not cache.use("aa", _never)

    def give_up() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        cache.use("aa", give_up)
    cache.fail("aa")
    assert not cache.use("aa", _never)


def test_content_that_a_payload_changed_is_forgotten(tmp_path):
    cache = Cache(str(tmp_path), 100)
    cache.use("aa", _never)
    _bring(cache, "aa")
    cache.drop("aa")
    cache.release("aa")
    assert not Path(cache.path("aa")).exists()
    assert not cache.use("aa", _never)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write(cache: Cache, data: bytes) -> str:
    """Bring content as a pilot does."""
    digest = _digest(data)
    assert not cache.use(digest, _never)
    path = Path(cache.path(digest))
    path.write_bytes(data)
    cache.keep(digest, len(data))
    return digest


def test_a_second_pilot_uses_what_the_first_brought_and_checks_it(tmp_path):
    one, two = Cache(str(tmp_path), 100), Cache(str(tmp_path), 100)
    digest = _write(one, b"content")
    assert two.use(digest, _never)
    # A payload has changed it in place: neither believes it any more.
    Path(one.path(digest)).write_bytes(b"CONTENT")
    assert not one.use(digest, _never)
    one.fail(digest)
    assert not two.use(digest, _never)
    two.fail(digest)
    assert not Path(one.path(digest)).exists()


def test_a_second_pilot_waits_for_the_first_and_brings_it_if_that_dies(tmp_path):
    one, two = Cache(str(tmp_path), 100), Cache(str(tmp_path), 100)
    digest = _digest(b"content")
    assert not one.use(digest, _never)
    Path(part(one.path(digest))).write_bytes(b"con")
    found: list[bool] = []
    other = threading.Thread(target=lambda: found.append(two.use(digest, _never)))
    other.start()
    other.join(0.3)
    assert found == []
    # As the kernel does for a process that is killed.
    os.close(one._coming.pop(digest))
    other.join()
    assert found == [False]


def test_what_pilots_bring_together_stays_within_the_limit(tmp_path, monkeypatch):
    one, two = Cache(str(tmp_path), 25), Cache(str(tmp_path), 25)
    first, second = _write(one, b"a" * 10), _write(two, b"b" * 10)
    assert one.use(second, _never)
    one.release(first)
    one.release(second)
    two.release(second)
    third = _write(two, b"c" * 10)
    two.release(third)
    # Each knows what it has brought, so the first to be over its limit looks at all of it.
    fourth = _write(two, b"d" * 10)
    there = [Path(one.path(each)).exists() for each in (first, second, third, fourth)]
    assert there == [False, False, True, True]
    # What one pilot uses another may remove, and its attempts have names of their own for it.
    assert not one.use(first, _never)
    one.fail(first)
    monkeypatch.setattr("pilotage.node.data.cache._STALE_S", 0.0)
    stale = Path(part(one.path(first)))
    stale.write_bytes(b"aaa")
    fifth = _write(two, b"e" * 10)
    two.release(fifth)
    assert not stale.exists()


def test_what_pilots_left_before_counts_and_so_does_what_others_bring(tmp_path):
    for name in ("aa", "bb", "cc"):
        one = Cache(str(tmp_path), 25)
        assert not one.use(name, _never)
        _bring(one, name)
        # It is killed: nothing is closed, and its locks are gone.
        os.close(one._alive)
    two = Cache(str(tmp_path), 25)
    assert len([path for path in tmp_path.glob("??/*") if not path.suffix]) == 2
    for name in ("dd", "ee"):
        assert not two.use(name, _never)
        _bring(two, name)
        two.release(name)
    assert len([path for path in tmp_path.glob("??/*") if not path.suffix]) == 2


def test_the_last_pilot_removes_it_and_a_folder_that_is_given_stays(tmp_path):
    folder = tmp_path / "cache"
    one, two = Cache(str(folder), 100), Cache(str(folder), 100)
    _write(one, b"content")
    one.close(remove=True)
    assert folder.exists()
    two.close(remove=True)
    assert not folder.exists()
    three = Cache(str(folder), 100)
    three.close(remove=False)
    assert folder.exists()


def test_a_folder_that_another_user_may_write_to_is_refused(tmp_path):
    good = shared(str(tmp_path / "top" / "good"))
    assert Path(good).stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(good)
    assert shared(str(tmp_path / "link")) == good
    Path(good).chmod(0o770)
    with pytest.raises(UnsafeError, match="may write"):
        shared(good)
    Path(good).chmod(0o700)
    (tmp_path / "top").chmod(0o777)
    with pytest.raises(UnsafeError, match="may replace"):
        shared(good)
    (tmp_path / "top").chmod(0o1777)
    assert shared(good) == good


def test_without_locks_content_is_brought_twice_and_is_right(tmp_path, monkeypatch):
    def none(_fd: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", none)
    one, two = Cache(str(tmp_path), 15), Cache(str(tmp_path), 15)
    digest = _digest(b"content")
    assert not one.use(digest, _never)
    assert not two.use(digest, _never)
    for cache in (one, two):
        written = Path(part(cache.path(digest)))
        written.write_bytes(b"content")
        written.rename(cache.path(digest))
        cache.keep(digest, 7)
    assert one.use(digest, _never)
    one.close(remove=True)
