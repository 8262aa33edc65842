"""Contract tests of batch systems without a running one: commands and listings.

An adapter's tests subclass `Words`, and give it the adapter and recorded output of the real tools.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotage.batch.system.model import (
    BatchCommand,
    BatchError,
    BatchItem,
    BatchOrder,
    BatchSystem,
    Output,
)

KEY = "p0123456789abcd"
SCRIPT = "#!/bin/sh\nexit 0\n"
ORDER = BatchOrder(key=KEY, script=SCRIPT, folder="/site/s/p0123456789abcd")

#: Text that means something to a shell, to a parser of options, or to one of lines.
HOSTILE = (
    "a\nb",
    "a\r\n#SBATCH --uid=0",
    "a\0b",
    "-x",
    "--uid=0",
    "$(touch /tmp/pwned)",
    "`id`",
    "a;id",
    "a|id",
    "a&id",
    "a'b",
    'a"b',
    'a" "b',
    "a b",
    "a,b=c",
    "a\\",
    "a\\\nb",
    "%j%x",
    "a\u2028b",
    "\x1b[2J",
    "../../etc",
    "#",
    "é",
)
NAMES = ("queue", "account", "qos", "constraint", "reservation")
JUNK = ("", "\n", "junk", "{", "[]", "null", "{}", "<html>", "\ufffd\ufffd", "0", "A|B|C\n")


class Sample(NamedTuple):
    """Recorded output, and what is to be read in it."""

    said: Output
    items: Sequence[BatchItem]


def recorded(folder: Path, name: str) -> Sample:
    """Return recorded output of a tool, from `NAME.txt` and `NAME.json` in a folder."""
    text = (folder / f"{name}.txt").read_bytes().decode(errors="replace")
    items = msgspec.json.decode((folder / f"{name}.json").read_bytes(), type=list[BatchItem])
    return Sample(Output(0, text), items)


class Words:
    """How every adapter writes orders and reads the output of tools."""

    #: Each is the output of the real tool.
    listings: Sequence[Sample] = ()
    histories: Sequence[Sample] = ()
    #: Output of the submitting tool, and the id in it.
    answers: Sequence[tuple[Output, str]] = ()
    #: What it said when it refused, and whether for ever.
    refusals: Sequence[tuple[Output, bool]] = ()
    #: Changes of `ORDER`, and the words that these must put into argv or lines into the input.
    mapping: Sequence[tuple[dict[str, Any], Sequence[str]]] = ()

    @pytest.fixture
    def batch(self) -> BatchSystem:
        raise NotImplementedError

    def test_listings_are_read_as_they_are(self, batch: BatchSystem) -> None:
        for said, items in self.listings:
            assert sorted(batch.listed(said), key=_place) == sorted(items, key=_place)

    def test_histories_are_read_as_they_are(self, batch: BatchSystem) -> None:
        for said, items in self.histories:
            assert sorted(batch.remembered(said), key=_place) == sorted(items, key=_place)

    def test_a_listing_that_ends_early_is_never_a_short_one(self, batch: BatchSystem) -> None:
        for said, _ in self.listings:
            _cut(said, batch.listed)
        for said, _ in self.histories:
            _cut(said, batch.remembered)

    @pytest.mark.parametrize("junk", JUNK)
    def test_junk_is_no_listing(self, batch: BatchSystem, junk: str) -> None:
        with pytest.raises(BatchError):
            batch.listed(Output(0, junk))

    def test_a_listing_that_failed_is_no_listing(self, batch: BatchSystem) -> None:
        for said, _ in (*self.listings, Sample(Output(0, ""), ())):
            for code in (1, -1, 255):
                with pytest.raises(BatchError) as caught:
                    batch.listed(Output(code, said.out, "the tool said no"))
                assert "the tool said no" in str(caught.value)

    def test_garbled_listings_break_nothing(self, batch: BatchSystem) -> None:
        for said, _ in self.listings:
            _garble(said, batch.listed)

    def test_ids_are_read(self, batch: BatchSystem) -> None:
        for said, name in self.answers:
            assert batch.submitted(said) == name

    @pytest.mark.parametrize("junk", ["", "junk\nmore junk", "\ufffd", "-1", "Submitted", "1 2\n3"])
    def test_junk_is_no_id(self, batch: BatchSystem, junk: str) -> None:
        with pytest.raises(BatchError) as caught:
            batch.submitted(Output(0, junk))
        assert not caught.value.final

    def test_refusals_are_told_apart(self, batch: BatchSystem) -> None:
        for said, final in self.refusals:
            with pytest.raises(BatchError) as caught:
                batch.submitted(said)
            assert caught.value.final is final, said

    def test_an_unknown_refusal_may_pass(self, batch: BatchSystem) -> None:
        with pytest.raises(BatchError) as caught:
            batch.submitted(Output(1, "", "an error code of the future"))
        assert not caught.value.final
        assert "an error code of the future" in str(caught.value)

    def test_resources_become_words(self, batch: BatchSystem) -> None:
        for changes, words in self.mapping:
            call = batch.submit(msgspec.structs.replace(ORDER, **changes))
            assert set(words) <= set(call.argv) | set(call.input.splitlines()), (changes, call)

    def test_the_key_is_the_name(self, batch: BatchSystem) -> None:
        call = batch.submit(ORDER)
        assert any(KEY in word for word in (*call.argv, *call.input.splitlines()))

    def test_text_stays_text(self, batch: BatchSystem) -> None:
        pairs = itertools.product(NAMES, HOSTILE)
        found = [_differs(batch, {name: text}, {name: "plain"}) for name, text in pairs]
        assert not any(found), "\n".join(filter(None, found))

    def test_folders_stay_text(self, batch: BatchSystem) -> None:
        found = [_differs(batch, {"folder": f"/site/{text}"}, {}) for text in HOSTILE]
        assert not any(found), "\n".join(filter(None, found))

    @pytest.mark.parametrize("hostile", ["a\nb", "--a\nb", "plain", "", "--a=\0", "--a=\x1b"])
    def test_what_is_no_option_is_refused(self, batch: BatchSystem, hostile: str) -> None:
        with pytest.raises(BatchError):
            batch.submit(msgspec.structs.replace(ORDER, extra=(hostile,)))

    @pytest.mark.parametrize("key", ["", "short", "-0123456789abcd", "p0123456789abc\n", "p" * 16])
    def test_what_is_no_key_is_refused(self, batch: BatchSystem, key: str) -> None:
        with pytest.raises(BatchError):
            batch.submit(msgspec.structs.replace(ORDER, key=key))

    @pytest.mark.parametrize(
        "changes",
        [
            {"count": 0}, {"nodes": 0}, {"tasks": -1}, {"cpus": 0}, {"gpus": -1}, {"memory": 0},
            {"time": 0.0}, {"time": float("nan")}, {"time": float("inf")}, {"folder": "here"},
        ],
    )  # fmt: skip
    def test_what_cannot_be_is_refused(self, batch: BatchSystem, changes: dict[str, Any]) -> None:
        with pytest.raises(BatchError) as caught:
            batch.submit(msgspec.structs.replace(ORDER, **changes))
        assert caught.value.final

    @pytest.mark.parametrize("name", ["", "-a", "1;id", "1 2", "$(id)", "1\n2", "*", "all"])
    def test_only_ids_are_cancelled(self, batch: BatchSystem, name: str) -> None:
        with pytest.raises(BatchError):
            batch.cancel([name])

    def test_cancelling_nothing_is_refused(self, batch: BatchSystem) -> None:
        # Many a tool takes no id for every id.
        with pytest.raises(BatchError):
            batch.cancel([])


def _place(item: BatchItem) -> tuple[str, int, str]:
    return item.key, item.index, item.id


def _cut(said: Output, read: Any) -> None:
    """Cut at any byte: what is left is refused, or read as a whole."""
    whole = read(said)
    data = said.out.encode()
    for length in range(len(data)) if len(data) < 20_000 else range(0, len(data), 97):
        try:
            found = read(Output(said.exit, data[:length].decode(errors="replace"), said.err))
        except BatchError:
            continue
        assert found == whole, length


def _garble(said: Output, read: Any) -> None:
    data = said.out.encode()

    @settings(max_examples=100)
    @given(at=st.integers(0, len(data)), gone=st.integers(0, 40), new=st.binary(max_size=20))
    def run(at: int, gone: int, new: bytes) -> None:
        text = (data[:at] + new + data[at + gone :]).decode(errors="replace")
        with contextlib.suppress(BatchError):
            read(Output(0, text))

    run()


def _differs(batch: BatchSystem, hostile: dict[str, str], plain: dict[str, str]) -> str:
    """Return how hostile text changes the number of words or lines; empty if it does not."""
    try:
        call = batch.submit(msgspec.structs.replace(ORDER, **hostile))
    except BatchError as error:
        return "" if error.final else f"{hostile}: refused, but not for ever: {error}"
    except Exception as error:
        error.add_note(f"from an order with {hostile}")
        raise
    expected = _shape(batch.submit(msgspec.structs.replace(ORDER, **plain)))
    return "" if _shape(call) == expected else f"{hostile}: {_shape(call)}, not {expected}"


def _shape(call: BatchCommand) -> tuple[int, int, list[str]]:
    options = [word.partition("=")[0] for word in call.argv if word.startswith("-")]
    return len(call.argv), len(call.input.splitlines()), options
