"""How tests are spread over workers: by file, each bed at few workers, the longest first.

A worker is given a file whose bed it has up already; else one whose bed no worker has; else one
that needs no bed; and only then does it bring up a bed that another worker has, too.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.suite import suites

#: Seconds that each file takes; those of a run are put there by `python -m tests.suite.durations`.
COSTS = Path(__file__).parent / "costs.json"
#: Seconds for a test in a file that is not in there.
_UNKNOWN_S = 0.5


def beds(items: Iterable[pytest.Item]) -> dict[str, str]:
    """Return the bed of each file that needs one: the heaviest of those that its tests use."""
    used: dict[str, set[str]] = defaultdict(set)
    for item in items:
        used[file_of(item.nodeid)].update(suites.beds(item))
    heaviest = {file: [bed for bed in suites.BEDS if bed in some] for file, some in used.items()}
    return {file: some[0] for file, some in heaviest.items() if some}


def file_of(test: str) -> str:
    """Return the file of a test."""
    return test.partition("::")[0]


def choose(
    costs: Mapping[str, float], beds: Mapping[str, str], mine: set[str], others: set[str]
) -> str:
    """Choose the next file for a worker, of those left with their seconds, and with their beds.

    `mine` are the beds that the worker has up, `others` those that other workers have.
    """
    by_bed: dict[str, float] = defaultdict(float)
    for file, cost in costs.items():
        by_bed[beds.get(file, "")] += cost

    def worth(file: str) -> tuple[int, float, float]:
        bed = beds.get(file, "")
        if bed in mine:
            return 3, 0.0, costs[file]
        if not bed:
            return 1, 0.0, costs[file]
        # A bed that takes long in all begins early.
        return (0 if bed in others else 2), by_bed[bed], costs[file]

    return max(costs, key=worth)


class ByBed(LoadScopeScheduling):  # type: ignore[misc]
    """Spreads files over workers."""

    def __init__(
        self, config: pytest.Config, log: object, told: Callable[[], dict[str, str]]
    ) -> None:
        """Take also what returns the bed of each file, once workers have collected."""
        super().__init__(config, log)
        self._told = told
        self._costs: dict[str, float] = json.loads(COSTS.read_text())
        self._beds: dict[str, str] = {}
        self._up: dict[WorkerController, set[str]] = defaultdict(set)

    def schedule(self) -> None:
        self._beds = self._beds or self._told()
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return file_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        left = {
            file: self._costs.get(file, _UNKNOWN_S * len(tests))
            for file, tests in self.workqueue.items()
        }
        others = set().union(*(beds for one, beds in self._up.items() if one is not node))
        file = choose(left, self._beds, self._up[node], others)
        if file in self._beds:
            self._up[node].add(self._beds[file])
        # What is first is assigned.
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)
