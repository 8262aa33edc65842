"""Contract tests of batch systems that need a running one.

An adapter's tests subclass `Life`, and give it a `Bed`.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

from pilotage.batch.system import known
from pilotage.batch.system.model import (
    BatchCommand,
    BatchItem,
    BatchOrder,
    BatchSystem,
    EndCause,
    Output,
    Phase,
)

#: How a script learns its number in an array, whatever runs it; as the program at worker nodes.
INDEX = (
    "i=${PILOTAGE_INDEX:-}\n"
    + "".join(
        # Grid Engine says `undefined` and LSF says 0 outside of arrays.
        f'case "$i,${{{name}:-}}" in ,|,undefined|,0) ;; ,*) i=$(({name}-{first}));; esac\n'
        for system in known.SYSTEMS
        for name, first in system.indices
    )
    + "i=${i:-0}\n"
)
#: Lines of a script that keep it running until `let_go`, so that a listing finds all of an order.
STAY = "while [ ! -e go ]; do sleep 0.1; done"


class Bed(Protocol):
    """A batch system to try things with."""

    batch: BatchSystem
    #: Where orders live: new for each test, and the same path on all nodes.
    folder: Path
    #: How many seconds things may take.
    patience: float
    #: What it can do, of `memory`, `time`, `signal`, `hold`, `wait`, `step`, `ended` (a listing
    #: or a history tells of what is over), `cause` (… and that it was cancelled).
    can: frozenset[str]

    def run(self, call: BatchCommand) -> Output:
        """Run a command in the environment of the system."""
        ...

    def waiting(self, order: BatchOrder) -> BatchOrder:
        """Change an order so that it stays in the queue."""
        ...

    def held(self, order: BatchOrder) -> BatchOrder:
        """Change an order so that it is held."""
        ...

    def stranger(self) -> None:
        """Submit a job whose name is not a key of ours."""
        ...


class Life:
    """The life of orders."""

    @pytest.fixture
    def bed(self) -> Bed:
        raise NotImplementedError

    def test_the_tools_are_there(self, bed: Bed) -> None:
        said = bed.run(bed.batch.version())
        assert said.exit == 0
        assert said.out.strip()

    def test_one_job(self, bed: Bed) -> None:
        order = make(bed, f'echo "$i" >> ran; echo out; echo err >&2; {STAY}; exit 0')
        name = submit(bed, order)
        # Found by its key at once: what has no id after a crash is found so.
        (item,) = find(bed, order.key)
        let_go(order)
        assert item.index == 0
        assert name == "" or item.id.startswith(name)
        over = wait(bed, order, Phase.OVER)
        assert told(bed, over) == [(0, EndCause.EXITED, 0, None)]
        assert (Path(order.folder) / "ran").read_text() == "0\n"
        assert not (bed.folder / "ran").exists()

    def test_what_it_writes_is_in_its_folder(self, bed: Bed) -> None:
        order = make(bed, "echo this-is-out; echo this-is-err >&2")
        submit(bed, order)
        wait(bed, order, Phase.OVER)
        text = until(bed, lambda: written(order), lambda text: "out" in text and "err" in text)
        assert "this-is-out" in text
        assert "this-is-err" in text

    def test_an_array(self, bed: Bed) -> None:
        if not bed.batch.arrays:
            pytest.skip("no arrays")
        order = make(bed, f'touch "ran.$i"; {STAY}; exit "$i"', count=5)
        submit(bed, order)
        items = find(bed, order.key)
        let_go(order)
        assert [item.index for item in items] == [0, 1, 2, 3, 4]
        assert len({item.id for item in items}) == 5
        over = wait(bed, order, Phase.OVER)
        assert told(bed, over) == [(i, EndCause.EXITED, i, None) for i in range(5)]
        assert {path.name for path in Path(order.folder).glob("ran.*")} == {
            f"ran.{i}" for i in range(5)
        }

    def test_a_code(self, bed: Bed) -> None:
        order = make(bed, "exit 7")
        submit(bed, order)
        assert told(bed, wait(bed, order, Phase.OVER)) == [(0, EndCause.EXITED, 7, None)]

    def test_a_signal(self, bed: Bed) -> None:
        if "signal" not in bed.can:
            pytest.skip("it tells of no signals")
        order = make(bed, "kill -9 $$")
        submit(bed, order)
        assert told(bed, wait(bed, order, Phase.OVER)) == [(0, EndCause.SIGNALLED, None, 9)]

    @pytest.mark.slow
    def test_a_time_out(self, bed: Bed) -> None:
        if "time" not in bed.can:
            pytest.skip("it keeps no wall time")
        order = make(bed, "sleep 300", time=2.0)
        number = submit(bed, order)
        self.hasten(bed, order, number)
        (item,) = wait(bed, order, Phase.OVER, extra=120)
        assert item.cause is EndCause.TIMEOUT

    def test_too_much_memory(self, bed: Bed) -> None:
        if "memory" not in bed.can:
            pytest.skip("it keeps no bound of memory")
        # `tail` holds the last line, which never ends.
        order = make(bed, "head -c 900M /dev/zero | tail; sleep 20", memory=100 << 20)
        submit(bed, order)
        (item,) = wait(bed, order, Phase.OVER, extra=60)
        assert item.cause is EndCause.MEMORY

    def test_states_over_a_life(self, bed: Bed) -> None:
        order = make(bed, f"touch runs; {STAY}; exit 3")
        submit(bed, order)
        (running,) = wait(bed, order, Phase.RUNNING)
        assert running.cause is None
        assert running.exit is None
        assert running.node
        assert running.started is not None
        assert abs(time.time() - running.started) < bed.patience
        until(bed, lambda: Path(order.folder, "runs").exists(), bool)
        let_go(order)
        (over,) = wait(bed, order, Phase.OVER)
        assert told(bed, [over]) == [(0, EndCause.EXITED, 3, None)]

    def test_waiting_and_called_off(self, bed: Bed) -> None:
        if "wait" not in bed.can:
            pytest.skip("nothing waits")
        order = bed.waiting(make(bed, "touch ran"))
        submit(bed, order)
        (item,) = wait(bed, order, Phase.QUEUED)
        self.call_off(bed, order, [item.id])
        assert not Path(order.folder, "ran").exists()

    def test_held_and_called_off(self, bed: Bed) -> None:
        if "hold" not in bed.can:
            pytest.skip("nothing is held")
        order = bed.held(make(bed, "touch ran"))
        submit(bed, order)
        (item,) = wait(bed, order, Phase.HELD)
        assert item.words
        self.call_off(bed, order, [item.id])
        assert not Path(order.folder, "ran").exists()

    def test_running_and_called_off(self, bed: Bed) -> None:
        order = make(bed, "sleep 300; touch ran")
        submit(bed, order)
        (item,) = wait(bed, order, Phase.RUNNING)
        self.call_off(bed, order, [item.id])

    def test_one_of_an_array_called_off(self, bed: Bed) -> None:
        if not bed.batch.arrays:
            pytest.skip("no arrays")
        order = make(bed, '[ "$i" != 1 ] || sleep 300', count=3)
        submit(bed, order)
        seen = until(
            bed, lambda: merged(bed, order), lambda seen: 1 in seen and runs(seen[1]), "item 1"
        )
        self.call_off(bed, order, [seen[1].id])
        # Between listing and history one may be in neither for a moment.
        others = until(bed, lambda: merged(bed, order), lambda seen: settled(seen, {0, 2}))
        assert told(bed, [others[0], others[2]]) == [(i, EndCause.EXITED, 0, None) for i in (0, 2)]

    def test_a_whole_array_called_off_in_the_queue(self, bed: Bed) -> None:
        if "wait" not in bed.can or not bed.batch.arrays:
            pytest.skip("no arrays that wait")
        order = bed.waiting(make(bed, "touch ran", count=4))
        submit(bed, order)
        items = find(bed, order.key)
        assert [item.phase for item in items] == [Phase.QUEUED] * 4
        self.call_off(bed, order, [item.id for item in items])
        assert not Path(order.folder, "ran").exists()

    def test_what_is_over_is_called_off_in_peace(self, bed: Bed) -> None:
        order = make(bed, f"{STAY}; exit 0")
        submit(bed, order)
        items = find(bed, order.key)
        let_go(order)
        over = wait(bed, order, Phase.OVER)
        said = bed.run(bed.batch.cancel([items[0].id]))
        assert said.exit == 0, said
        assert told(bed, wait(bed, order, Phase.OVER)) == told(bed, over)

    def test_one_that_is_over_keeps_no_other_alive(self, bed: Bed) -> None:
        first = make(bed, f"{STAY}; exit 0")
        submit(bed, first)
        gone = find(bed, first.key)
        let_go(first)
        wait(bed, first, Phase.OVER)
        second = make(bed, "sleep 300")
        submit(bed, second)
        (item,) = wait(bed, second, Phase.RUNNING)
        self.call_off(bed, second, [gone[0].id, item.id])

    def test_strangers_are_not_listed(self, bed: Bed) -> None:
        bed.stranger()
        order = make(bed, f"{STAY}; exit 0")
        submit(bed, order)
        keys = {item.key for item in bed.batch.listed(bed.run(bed.batch.listing()))}
        let_go(order)
        assert order.key in keys
        assert all(len(key) == 15 and key.isalnum() for key in keys)

    def test_a_step(self, bed: Bed) -> None:
        if "step" not in bed.can:
            pytest.skip("no steps")
        order = make(bed, f"touch ran; {STAY}; exit 5", step=True)
        call = bed.batch.submit(order)
        assert call.detach
        # It says no id: a listing does.
        assert bed.run(call).exit == 0
        wait(bed, order, Phase.RUNNING)
        until(bed, lambda: Path(order.folder, "ran").exists(), bool)
        let_go(order)
        over = wait(bed, order, Phase.OVER)
        assert told(bed, over) == [(0, EndCause.EXITED, 5, None)]

    def hasten(self, bed: Bed, order: BatchOrder, number: str) -> None:
        """Let the time of an order be over soon, where the least that can be asked for is long."""

    def call_off(self, bed: Bed, order: BatchOrder, ids: list[str]) -> None:
        """Cancel, and see that it took effect."""
        called_off = set(ids)
        indices = {item.index for item in find(bed, order.key) if item.id in called_off}
        said = bed.run(bed.batch.cancel(ids))
        assert said.exit == 0, said
        # What never ran may leave the listing without trace.
        seen = until(bed, lambda: merged(bed, order), lambda seen: ended(seen, indices), "over")
        if "cause" in bed.can:
            causes = {item.cause for index, item in seen.items() if index in indices}
            assert causes <= {EndCause.CANCELLED}


_numbers = itertools.count()


def make(bed: Bed, body: str, **changes: Any) -> BatchOrder:
    """Make an order of a few lines of shell, with a folder of its own."""
    key = f"k{os.getpid() % 10**7:07}{next(_numbers):07}"
    folder = bed.folder / key
    folder.mkdir()
    script = f"#!/bin/sh\n{INDEX}{body}\n"
    (folder / "script.sh").write_text(script)
    order = BatchOrder(key=key, script=script, folder=str(folder))
    return msgspec.structs.replace(order, **changes)


def submit(bed: Bed, order: BatchOrder) -> str:
    """Submit an order; return the id it was given."""
    return bed.batch.submitted(bed.run(bed.batch.submit(order)))


def let_go(order: BatchOrder) -> None:
    """End the jobs of an order that wait in their script."""
    Path(order.folder, "go").touch()


def find(bed: Bed, key: str) -> list[BatchItem]:
    """Return the items of an order in the next listing."""
    items = bed.batch.listed(bed.run(bed.batch.listing()))
    return sorted((item for item in items if item.key == key), key=lambda item: item.index)


def merged(bed: Bed, order: BatchOrder) -> dict[int, BatchItem]:
    """Return what listing and history know of an order, by number."""
    seen = {item.index: item for item in find(bed, order.key)}
    if (call := bed.batch.history(time.time() - 3600)) is not None:
        for item in bed.batch.remembered(bed.run(call)):
            if item.key == order.key:
                seen.setdefault(item.index, item)
    return seen


def wait(bed: Bed, order: BatchOrder, phase: Phase, *, extra: float = 0) -> list[BatchItem]:
    """Wait until all of an order is in a phase; return it."""

    def done(seen: dict[int, BatchItem]) -> bool:
        return set(seen) == set(range(order.count)) and all(
            item.phase is phase for item in seen.values()
        )

    seen = until(bed, lambda: merged(bed, order), done, str(phase), extra)
    return [seen[index] for index in sorted(seen)]


def let_others_run(bed: Bed) -> None:
    """Run a later job: a job that is requeued has begun by then."""
    later = make(bed, "true")
    submit(bed, later)
    wait(bed, later, Phase.OVER)


def ended(seen: dict[int, BatchItem], indices: set[int]) -> bool:
    """Return whether all of these are over, or gone."""
    return all(item.phase is Phase.OVER for index, item in seen.items() if index in indices)


def settled(seen: dict[int, BatchItem], indices: set[int]) -> bool:
    """Return whether all of these are over, and known to be."""
    return indices <= set(seen) and ended(seen, indices)


def runs(item: BatchItem) -> bool:
    """Return whether an item runs."""
    return item.phase is Phase.RUNNING


def until(
    bed: Bed,
    look: Callable[[], Any],
    good: Callable[[Any], Any],
    what: str = "",
    extra: float = 0,
) -> Any:
    """Poll until a condition holds; return the last value."""
    deadline = time.monotonic() + bed.patience + extra
    rest = 0.1
    while not good(seen := look()):
        assert time.monotonic() < deadline, f"not {what}: {seen}"
        time.sleep(rest)
        # Each look starts a program or two.
        rest = min(1.2 * rest, 0.5)
    return seen


def told(
    bed: Bed, items: list[BatchItem]
) -> list[tuple[int, EndCause | None, int | None, int | None]]:
    """Return why items are over."""
    assert "ended" in bed.can
    return [(item.index, item.cause, item.exit, item.signal) for item in items]


def written(order: BatchOrder) -> str:
    """Return all that the batch system put into the order's folder as output."""
    folder = Path(order.folder)
    texts = [path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()]
    return "".join(text for text in texts if not text.startswith("#!"))
