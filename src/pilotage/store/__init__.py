"""Where everything acknowledged is: one SQLite file, its schema and its named queries.

In: functions that take a `Db` and read or change rows. Out: committed transactions, or one of
`errors.StoreUnavailable`. Verbs live in their stage (`job.records`, `rule.records`, ...).
"""

from __future__ import annotations

from pilotage.store.sqlite import OUTSIDE, Db, connect
from pilotage.store.writer import Writer

__all__ = ["OUTSIDE", "Db", "Writer", "connect"]
