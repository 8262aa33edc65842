"""The store, one SQLite file: functions of a `Db` come in, committed transactions go out.

It has the schema, the migrations and all named queries; `records` modules elsewhere use them.
"""

from __future__ import annotations

from pilotage.store.sqlite import OUTSIDE, Db, connect
from pilotage.store.writer import Writer

__all__ = ["OUTSIDE", "Db", "Writer", "connect"]
