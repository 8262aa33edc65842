"""Questions that are asked all the time must not cost more with every job that ever was."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import apsw

from pilotage.store import connect, sqlite
from tests.suite import every

HOT = (
    "api_ends", "api_history", "api_job_by_key", "api_jobs_changed", "api_jobs_live", "api_lines",
    "api_moves", "api_pilot_jobs", "token_get",
    "event_message", "event_taken", "event_waiting", "file_below", "file_listing",
    "dependants", "dependency_of", "job_add", "job_add_one", "job_add_special", "job_asked",
    "job_end_facts", "job_first_live", "job_keys", "job_live", "job_move",
    "claim_jobs", "claim_again", "end_jobs", "end_facts", "end_attempts", "queue_load",
    "queue_tail", "queue_leases", "ends_of_tag", "job_running", "journal_ends", "output_of",
    "output_purge",
    "pending_due", "pending_next",
    "edge_follow_drop", "edge_follow_due", "edge_followed_now", "edge_log_has",
)  # fmt: skip
_WHOLE = re.compile(r"SCAN (?:job|event|file|output|pending|edge_attempt|edge_message)\b")
#: A walk through an index that holds only what is not over.
_LIVE = re.compile(r"SCAN \w+ USING INDEX (?:job_live|job_asked|event_waiting)")


def test_no_whole_table_is_read(tmp_path: Path) -> None:
    connect(tmp_path / "store.db").close()
    raw = apsw.Connection(str(tmp_path / "store.db"))
    with contextlib.closing(raw), every.cases() as case:
        for name in HOT:
            with case(name):
                plan = _plan(raw, sqlite.load()[name])
                whole = [step for step in plan if _WHOLE.match(step)]
                assert [step for step in whole if not _LIVE.match(step)] == []


def _plan(raw: apsw.Connection, query: str) -> list[str]:
    source = re.sub(r"--.*", "", query)
    values = dict.fromkeys(re.findall(r"(?<!\w):([a-z_]+)", source), "[]")
    return [row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {source}", values)]
