"""What a pilot keeps of what jobs read: once, for as long as it is used, up to a limit."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pilotage.pilot.node.data.cache import Cache


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
