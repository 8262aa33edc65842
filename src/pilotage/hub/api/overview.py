"""How things stand, in one answer."""

from __future__ import annotations

import threading
from typing import Any

from pilotage.hub.api import pilots, tell
from pilotage.hub.api.call import Call
from pilotage.hub.api.reader import Memo
from pilotage.hub.api.tally import Tally
from pilotage.store import Db

_HISTORY_S = 3600.0
#: A site that has not been sampled for so long counts no more.
_STALE_S = 60.0


class Whole:
    """What answers share: counts that are kept, and answers that cost much."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.tally = Tally()
        self.memo = Memo()
        self._lock = threading.Lock()

    def count(self, db: Db, now: float) -> None:
        """Bring the counts up to date."""
        with self._lock:
            self.tally.catch_up(db, now)

    def overview(self, db: Db, now: float, since: float) -> tell.Overview:
        """Say how things stand, with the history since a time."""
        self.count(db, now)
        last = db.rows("api_history", since=now - _STALE_S)
        cpus, used = last[-1][2:] if last else self.cores(db)
        history = db.rows("api_history", since=since)
        return tell.Overview(
            now,
            dict(self.tally.counts),
            self.tally.rates(now),
            self.pilots(db),
            cpus,
            used,
            alarms(db),
            history,
        )

    def pilots(self, db: Db) -> dict[str, int]:
        """Count pilots by state."""
        return self.memo.get("pilots", lambda: dict(db.rows("api_pilot_counts")))

    def cores(self, db: Db) -> tuple[int, int]:
        """Count cores and those in use, where no sample tells."""
        return self.memo.get("cores", lambda: pilots.cores(db))

    def owners(self, db: Db) -> list[tuple[Any, ...]]:
        """Count jobs that run or wait by owner."""
        return self.memo.get("owners", lambda: db.rows("api_owners"))

    def show(self, db: Db, call: Call) -> tell.Overview:
        """Answer with the history of the last hour."""
        return self.overview(db, call.now, call.now - _HISTORY_S)

    def shares(self, db: Db, call: Call) -> tell.Shares:
        """Answer who has used how much."""
        return pilots.shares(db, call, self.owners(db))


def alarms(db: Db) -> list[tell.Alarm]:
    """Read what needs a person."""
    return [tell.Alarm(*one) for one in db.rows("alarm_all")]
