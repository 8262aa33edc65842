"""What ended an attempt: one value for every observer of the end."""

from __future__ import annotations

import pytest

from pilotage.agent import outbox
from pilotage.batch import results
from pilotage.batch.submission import TaskEnd
from pilotage.batch.system import model as batch
from pilotage.batch.system.model import BatchItem, Phase
from pilotage.job.outcome import Cause
from pilotage.pilot import messages
from pilotage.pilot import model as pilots
from pilotage.run.model import Ending, EndReason, Usage
from pilotage.run.outcome import classify


def ended(why: EndReason, code: int | None = None) -> Ending:
    return Ending("1.1", 0.0, code, None, why, "", None)


def test_every_report_of_a_starter_has_a_cause():
    found = {why: classify(ended(why, 1), (0,), tuple).cause for why in EndReason}
    assert not {Cause.NONE, Cause.OUTPUT} & set(found.values())
    assert [why for why, cause in found.items() if cause is Cause.LOST] == [EndReason.LOST]


def test_a_success_has_no_cause_unless_an_output_is_missing():
    assert classify(ended(EndReason.EXITED, 3), (0, 3), tuple).cause is Cause.NONE
    assert classify(ended(EndReason.EXITED, 0), (0,), lambda: ("table",)).cause is Cause.OUTPUT


def test_outputs_of_a_failure_are_not_looked_for():
    assert classify(ended(EndReason.EXITED, 1), (0,), lambda: ("table",)).missing == ()


def test_what_no_starter_reports_is_a_loss():
    told = messages.ending(pilots.ReportedEnd(key="1.1", time=0.0, reason="abducted", exit=0))
    assert classify(told, (0,), tuple).cause is Cause.LOST


def test_what_a_pilot_reports_is_kept_within_bounds():
    used = Usage(-1.0, 1e300, 0.0, 1 << 80, -(1 << 80), 7)
    told = pilots.ReportedEnd(
        key="1.1", time=0.0, reason="exited", exit=1 << 90, message="a\x1b" * 4000, usage=used
    )
    found = classify(messages.ending(told), (0,), tuple)
    assert (found.exit, found.wall, found.cpu) == (2**53, 0.0, 2.0**53)
    assert (found.max_rss, found.read_bytes, found.written_bytes) == (2**53, -(2**53), 7)
    assert len(found.message) == 2000
    assert "\x1b" not in found.message


@pytest.mark.parametrize(
    "said, cause",
    [
        (batch.EndCause.MEMORY, Cause.MEMORY),
        (batch.EndCause.TIMEOUT, Cause.TIMEOUT),
        (batch.EndCause.NODE, Cause.NODE),
        (batch.EndCause.PREEMPTED, Cause.PREEMPTED),
        (batch.EndCause.SIGNALLED, Cause.KILLED),
        (batch.EndCause.CANCELLED, Cause.CANCELLED),
        (batch.EndCause.EXITED, Cause.LOST),
        (batch.EndCause.UNKNOWN, Cause.LOST),
        (None, Cause.LOST),
    ],
)
def test_what_a_scheduler_says_is_a_cause(said: batch.EndCause | None, cause: Cause):
    item = BatchItem(key="k", id="7", index=0, phase=Phase.OVER, cause=said)
    assert results._by_scheduler(item, never="").cause is cause


def test_each_cause_can_be_told_to_others():
    assert {*outbox._CAUSES} == {*Cause} - {Cause.NONE}


def test_what_never_reached_the_batch_system_was_not_started():
    assert results.judge(None, TaskEnd(never="sbatch said no"), "").cause is Cause.NOT_STARTED  # type: ignore[arg-type]
    assert results.judge(None, TaskEnd(), "").cause is Cause.LOST  # type: ignore[arg-type]
