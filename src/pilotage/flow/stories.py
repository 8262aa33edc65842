"""Follows the stories of flows, and has told what somebody wants to know."""

from __future__ import annotations

from pilotage.base.wakeup import Wakeup
from pilotage.event import records
from pilotage.flow import definition, notify
from pilotage.store import Db, Writer

#: Lines that nobody wants to hear of are noted as read when there are so many.
_MOST = 2000


class Stories:
    """Reads on in all stories; only what is to be told costs a transaction."""

    def __init__(self, writer: Writer, reader: Db, bell: Wakeup) -> None:
        """Get ready; `bell` rings when there may be something new."""
        self._writer, self._reader, self._bell = writer, reader, bell
        #: The line up to which nothing is to be told, and how many of those are not noted.
        self._last = 0
        self._idle = 0

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            await self._bell.wait()
            while self._wanted():
                while await self._writer.run(notify.follow):
                    pass
                self._idle = 0

    def _wanted(self) -> bool:
        """Say whether anything is to be told, or much was read that was not."""
        start = max(self._last, int(records.cursor(self._reader, notify.CURSOR) or 0))
        rows = self._reader.rows("flows_story", after=start, most=_MOST)
        if not rows:
            return False
        self._last = rows[-1][0]
        self._idle += len(rows)
        flows = {row[2] for row in rows}
        return self._idle >= _MOST or any(self._told(flow) for flow in flows)

    def _told(self, flow: int) -> bool:
        asked = definition.head(self._reader, flow).flow.notify
        return bool(asked.reply or asked.webhook or asked.email)
