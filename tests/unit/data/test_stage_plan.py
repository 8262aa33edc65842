"""What must move, and which names of a site are believed."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.data.stage import plan
from pilotage.data.stage.model import Key
from pilotage.data.transfer.version import Version

STEP = 8


def sums(data: bytes) -> plan.BlockSums:
    whole = range(0, len(data) - STEP + 1, STEP)
    return plan.BlockSums(len(data), STEP, [_hash(data[at : at + STEP]) for at in whole])


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def hasher(data: bytes):
    def ours(at: int, length: int) -> str:
        stretch = data[at : at + length]
        assert len(stretch) == length
        return _hash(stretch)

    return ours


def key(path: str, size: int = 1) -> Key:
    return Key(path, Version(1, 1, size, 1, 1))


#: Few letters, so that blocks are often alike where nobody expects it.
contents = st.binary(max_size=120) | st.text("ab", max_size=120).map(str.encode)


@given(contents, st.data())
def test_going_on_keeps_only_what_is_right(content, data):
    part = bytearray(content[: data.draw(st.integers(0, len(content)))])
    if part and data.draw(st.booleans()):
        part[data.draw(st.integers(0, len(part) - 1))] ^= 1
    spans = plan.resume(len(content), sums(bytes(part)), hasher(content))
    made = part.ljust(len(content), b"\0")
    for at, length in spans:
        made[at : at + length] = content[at : at + length]
    assert bytes(made) == content


def test_each_content_moves_once_and_what_is_there_not_at_all():
    wanted = [(key("a"), "1"), (key("b"), "1"), (key("c"), "2"), (key("d"), "3")]
    assert plan.batches(wanted, {"2"}) == [[key("a"), key("d")]]


def test_many_files_share_few_channels(monkeypatch):
    monkeypatch.setattr(plan, "CHANNEL_FILES", 3)
    monkeypatch.setattr(plan, "CHANNEL_BYTES", 100)
    wanted = [(key(str(n)), str(n)) for n in range(7)]
    assert [len(group) for group in plan.batches(wanted, ())] == [3, 3, 1]
    heavy = [(key(str(n), 60), str(n)) for n in range(4)]
    assert [len(group) for group in plan.batches(heavy, ())] == [2, 2]


@pytest.mark.parametrize(
    "answer",
    [
        {"have": "all"},
        {"have": [], "parts": {"x": {"size": 1, "step": 0, "blocks": [], "part": "p"}}},
        {"have": [], "parts": {"x": {"size": -1, "step": 4096, "blocks": [], "part": "p"}}},
    ],
)
def test_nonsense_from_a_site_is_said_to_be_that(answer):
    with pytest.raises(errors.Unavailable, match="invalid answer"):
        plan.had(answer)
