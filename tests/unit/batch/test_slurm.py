from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.batch.system import slurm
from pilotage.batch.system.model import BatchItem, EndCause, Output, Phase
from pilotage.batch.system.slurm import listing, orders

US, RS = "\x1f", "\x1e\n"
END = "\nend of listing\n"
KEY = "p0123456789abcd"


def _row(**changes: str) -> str:
    fields = {
        "job": "12", "index": "N/A", "state": "RUNNING", "code": "0", "reason": "None",
        "nodes": "n1", "start": "100", "end": "200", "comment": "count=1", "name": KEY,
    } | changes  # fmt: skip
    return US.join(value.ljust(12) for value in fields.values()) + RS


def _one(**changes: str) -> BatchItem:
    (item,) = slurm.TOOLS.listed(Output(0, _row(**changes) + END))
    return item


@pytest.mark.parametrize(
    "state, phase, cause",
    [
        ("PENDING", Phase.QUEUED, None),
        ("REQUEUED", Phase.QUEUED, None),
        ("RUNNING", Phase.RUNNING, None),
        ("SUSPENDED", Phase.RUNNING, None),
        ("COMPLETING", Phase.RUNNING, None),
        ("CONFIGURING", Phase.RUNNING, None),
        ("STOPPED", Phase.RUNNING, None),
        ("SIGNALING", Phase.RUNNING, None),
        ("STAGE_OUT", Phase.RUNNING, None),
        ("SPECIAL_EXIT", Phase.HELD, None),
        ("RESV_DEL_HOLD", Phase.HELD, None),
        ("REQUEUE_HOLD", Phase.HELD, None),
        ("COMPLETED", Phase.OVER, EndCause.EXITED),
        ("CANCELLED", Phase.OVER, EndCause.CANCELLED),
        ("TIMEOUT", Phase.OVER, EndCause.TIMEOUT),
        ("DEADLINE", Phase.OVER, EndCause.TIMEOUT),
        ("NODE_FAIL", Phase.OVER, EndCause.NODE),
        ("BOOT_FAIL", Phase.OVER, EndCause.NODE),
        ("PREEMPTED", Phase.OVER, EndCause.PREEMPTED),
        ("OUT_OF_MEMORY", Phase.OVER, EndCause.MEMORY),
        # It went to a cluster of the federation: nothing may be concluded from that here.
        ("REVOKED", Phase.UNKNOWN, None),
        ("SOMETHING_NEW", Phase.UNKNOWN, None),
        ("", Phase.UNKNOWN, None),
    ],
)
def test_every_word_of_slurm_means_something(state: str, phase: Phase, cause: EndCause | None):
    item = _one(state=state)
    assert (item.phase, item.cause) == (phase, cause)
    assert item.words == state


@pytest.mark.parametrize(
    "reason, phase",
    [
        ("JobHeldUser", Phase.HELD),
        ("JobHeldAdmin", Phase.HELD),
        ("launch failed requeued held", Phase.HELD),
        ("launch_failed_requeued_held", Phase.HELD),
        ("DependencyNeverSatisfied", Phase.HELD),
        ("BadConstraints", Phase.HELD),
        ("PartitionConfig", Phase.HELD),
        ("QOSMaxCpuPerJobLimit", Phase.HELD),
        ("Priority", Phase.QUEUED),
        ("Resources", Phase.QUEUED),
        ("Dependency", Phase.QUEUED),
        ("QOSMaxCpuPerUserLimit", Phase.QUEUED),
        ("None", Phase.QUEUED),
    ],
)
def test_what_keeps_a_job_is_told_from_what_delays_it(reason: str, phase: Phase):
    assert _one(state="PENDING", reason=reason).phase is phase


@pytest.mark.parametrize(
    "code, cause, exited, signal",
    [
        ("256", EndCause.EXITED, 1, None),
        ("65280", EndCause.EXITED, 255, None),
        ("9", EndCause.SIGNALLED, None, 9),
        ("139", EndCause.SIGNALLED, None, 11),
        ("4021", EndCause.NODE, None, None),
        ("0", EndCause.NODE, None, None),
    ],
)
def test_failures_say_why(code: str, cause: EndCause, exited: int | None, signal: int | None):
    item = _one(state="FAILED", code=code)
    assert (item.cause, item.exit, item.signal) == (cause, exited, signal)


def test_what_was_refused_and_is_listed_all_the_same_never_ran():
    assert _one(state="FAILED", code="1", reason="BadConstraints", nodes="").cause is EndCause.NODE


def test_a_guess_at_the_start_is_no_start():
    assert _one(state="PENDING", nodes="", start="100").started is None


def test_what_remains_of_an_array_is_left_out():
    text = _row(state="CANCELLED", comment="count=3") + END
    assert slurm.TOOLS.listed(Output(0, text)) == []
    # Also where a site writes comments of its own.
    rows = _row(state="CANCELLED", comment="ours") + _row(index="1", comment="ours")
    (item,) = slurm.TOOLS.listed(Output(0, rows + END))
    assert (item.id, item.index) == ("12_1", 1)


def test_a_key_is_the_whole_name():
    for name in ("p0123456789abcde", "p0123456789abc", "p0123456789ab-d", "x\np0123456789abcd"):
        assert slurm.TOOLS.listed(Output(0, _row(name=name) + END)) == []


def test_names_may_hold_separators():
    rows = _row(name=f"odd{US}name\nof{US}lines") + _row()
    assert [item.key for item in slurm.TOOLS.listed(Output(0, rows + END))] == [KEY]


@given(st.sets(st.integers(0, 300), min_size=1))
def test_ids_of_an_array_are_joined_and_none_is_lost(indices: set[int]):
    (word,) = orders.joined([f"7_{index}" for index in indices])
    assert word.startswith("7_")
    found: set[int] = set()
    for span in word[2:].strip("[]").split(","):
        first, _, last = span.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    assert found == indices


def test_every_end_has_a_cause():
    for state, phase in listing._PHASES.items():
        for code, signal in ((0, 0), (1, 0), (0, 9), (15, 53)):
            assert (
                listing.ended(state, code, signal, "n1").cause is not None
            ) or phase is not Phase.OVER
