"""What payloads really use: processor time and memory of all that a starter has started.

Two sums grow while the pilot lives: seconds of cores that payloads have used, and seconds of cores
that they have had. Whoever reads them twice knows how busy the cores were in between.
"""

from __future__ import annotations

import os

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Gauge:
    """Measures now and then; one look is one pass over the processes of the node."""

    def __init__(self) -> None:
        #: Seconds between two measurements; nothing if nobody wants to know.
        self.interval: float | None = None
        self._cores: dict[str, int] = {}
        self._since = 0.0
        self._had = 0.0
        #: The starter that was looked at last, what it has used, and what those before it had.
        self._root = 0
        self._used = 0.0
        self._before = 0.0
        self._looked = 0.0
        #: Whether payloads have run since, and what was measured and not told.
        self._stale = False
        self._news = ""

    def begin(self, key: str, cores: int, now: float) -> None:
        """Note that a payload has cores from now on."""
        self._count(now)
        self._cores[key] = max(1, cores)

    def end(self, key: str, now: float) -> None:
        """Note that it has them no more."""
        self._count(now)
        self._cores.pop(key, None)

    def _count(self, now: float) -> None:
        cores = sum(self._cores.values())
        self._had += cores * max(0.0, now - self._since)
        self._stale = self._stale or cores > 0
        self._since = now

    def measure(self, root: int | None, now: float) -> None:
        """Look at all that the process `root` has started, if it is time and worth while."""
        if self.interval is None or root is None or now - self._looked < self.interval:
            return
        self._count(now)
        if not self._stale:
            return
        used, resident = tree(root)
        if root != self._root:
            self._root, self._before = root, self._before + self._used
            self._used = 0.0
        # What nobody waited for is not in the sum any more.
        self._used = max(self._used, used)
        self._looked, self._stale = now, bool(self._cores)
        self._news = f"[{self._before + self._used:.2f},{self._had:.2f},{resident}]"

    def tell(self) -> str:
        """Write a field of a message with what is new; empty if nothing is."""
        news, self._news = self._news, ""
        return f',"used":{news}' if news else ""


def tree(root: int, proc: str = "/proc") -> tuple[float, int]:
    """Sum up the processor seconds and the resident bytes of all that a process has started."""
    children: dict[int, list[int]] = {}
    facts: dict[int, tuple[int, int, int]] = {}
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        try:
            with open(f"{proc}/{name}/stat", "rb", buffering=0) as file:
                words = file.read(1024).rpartition(b")")[2].split()
        except OSError:
            continue
        own, waited = int(words[11]) + int(words[12]), int(words[13]) + int(words[14])
        facts[int(name)] = own, waited, int(words[21])
        children.setdefault(int(words[1]), []).append(int(name))
    # The starter itself is ours; what it waited for were payloads.
    ticks, pages = facts.get(root, (0, 0, 0))[1], 0
    found = list(children.get(root, ()))
    for pid in found:
        own, waited, resident = facts[pid]
        ticks += own + waited
        pages += resident
        found += children.get(pid, ())
    return ticks / _TICKS, pages * _PAGE
