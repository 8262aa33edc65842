from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.batch.system.local import local
from pilotage.batch.system.model import (
    BatchCommand,
    BatchItem,
    BatchOrder,
    BatchSystem,
    EndCause,
    Output,
    Phase,
)
from pilotage.pilot import pack
from pilotage.testing.batch import beds
from pilotage.testing.batch.life import Bed, Life, find, make, submit, until, wait
from pilotage.testing.batch.words import Sample, Words

CAN = frozenset({"time", "signal", "wait", "ended", "cause", "memory"})
CORES = len(os.sched_getaffinity(0))


class Queue(beds.Commands):
    """The queue of this machine, by the packed program."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.root = folder / "local"
        orders = folder / "s"
        orders.mkdir()
        run = (sys.executable, str(program))
        stranger = BatchCommand(
            (
                *run,
                "local",
                f"--root={self.root}",
                "submit",
                "--key=odd name",
                f"--folder={orders}",
            ),
            "true",
        )
        super().__init__(local(run, str(self.root)), orders, os.environ, can=CAN, stranger=stranger)

    def waiting(self, order: BatchOrder) -> BatchOrder:
        """Take all cores first."""
        submit(self, make(self, "sleep 300", cpus=CORES))
        return order

    def close(self) -> None:
        ids = [path.name for path in self.root.iterdir() if path.name.isdigit()]
        if ids:
            self.run(self.batch.cancel(ids))
        until(self, self._keepers, lambda alive: not alive, "all keepers gone")

    def keeper(self, key: str) -> int:
        """Return the process that keeps an order."""
        for path in self.root.glob("[0-9]*"):
            if json.loads((path / "order.json").read_text())["key"] == key:
                return int(json.loads((path / "keeper.json").read_text())["pid"])
        raise LookupError(key)

    def _keepers(self) -> list[int]:
        found = [json.loads(path.read_text())["pid"] for path in self.root.glob("*/keeper.json")]
        return [pid for pid in found if Path(f"/proc/{pid}").exists()]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bin") / "pilotage.pyz"
    pack.write(path)
    return path


@pytest.fixture
def queue(program: Path, tmp_path: Path) -> Iterator[Queue]:
    made = Queue(program, tmp_path)
    made.root.mkdir()
    try:
        yield made
    finally:
        made.close()


class Testlocal(Life):
    @pytest.fixture
    def bed(self, queue: Queue) -> Bed:
        return queue


LISTING = (
    '{"items": [{"id": "1.0", "key": "p0123456789abcd", "index": 0, "cause": "exited", "exit": 7, '
    '"phase": "over", "ended": 1794801017.5, "node": "here", "started": 1794801016.25}, '
    '{"id": "2.0", "key": "p0123456789abce", "index": 0, "phase": "queued"}, '
    '{"id": "2.1", "key": "p0123456789abce", "index": 1, "phase": "running", "node": "here", '
    '"started": 1794801016.5}, {"id": "3.0", "key": "strange one", "index": 0, "phase": "queued"}, '
    '{"id": "4.0", "key": "p0123456789abcf", "index": 0, "phase": "over", "cause": "signalled", '
    '"signal": 9, "ended": 1794801018.0}]}\n'
)


class TestWords(Words):
    listings = (
        Sample(Output(0, '{"items": []}\n'), ()),
        Sample(
            Output(0, LISTING),
            (
                BatchItem(
                    key="p0123456789abcd", id="1.0", phase=Phase.OVER, cause=EndCause.EXITED,
                    exit=7,
                    node="here", started=1794801016.25, ended=1794801017.5,
                ),
                BatchItem(key="p0123456789abce", id="2.0", phase=Phase.QUEUED),
                BatchItem(
                    key="p0123456789abce", id="2.1", index=1, phase=Phase.RUNNING, node="here",
                    started=1794801016.5,
                ),
                BatchItem(
                    key="p0123456789abcf", id="4.0", phase=Phase.OVER, cause=EndCause.SIGNALLED,
                    signal=9, ended=1794801018.0,
                ),
            ),
        ),
    )  # fmt: skip
    answers = ((Output(0, "12\n"), "12"),)
    refusals = (
        (Output(2, "", "refused: 9 cores are asked for, there are 2\n"), True),
        (Output(1, "", "local submit: [Errno 28] No space left on device\n"), False),
    )
    mapping = (
        ({"count": 3, "tasks": 2, "cpus": 4}, ("--count=3", "--cpus=8")),
        ({"memory": 1 << 30, "time": 90.0}, (f"--memory={1 << 30}", "--time=90.0")),
    )

    @pytest.fixture
    def batch(self) -> BatchSystem:
        return local(("python3", "/site/bin/x.pyz"), "/site/local")


def test_as_many_at_once_as_there_are_cores(queue: Queue):
    order = make(queue, 'touch "on.$i"; ls on.* | wc -l > "n.$i"; sleep 0.3; rm "on.$i"', count=6)
    submit(queue, order)
    wait(queue, order, Phase.OVER)
    counts = [int(path.read_text()) for path in Path(order.folder).glob("n.*")]
    assert len(counts) == 6
    assert max(counts) <= CORES


def test_submissions_share_the_cores(queue: Queue):
    text = f"cd {queue.folder}; touch on.$$; ls on.* | wc -l >> most; sleep 0.2; rm on.$$"
    orders = [make(queue, text) for _ in range(8)]
    for order in orders:
        submit(queue, order)
    for order in orders:
        wait(queue, order, Phase.OVER)
    counts = [int(line) for line in (queue.folder / "most").read_text().split()]
    assert len(counts) == 8
    assert max(counts) <= CORES


def test_too_many_cores_are_refused_for_ever(queue: Queue):
    said = queue.run(queue.batch.submit(make(queue, "true", cpus=CORES + 1)))
    with pytest.raises(Exception, match="cores are asked for") as caught:
        queue.batch.submitted(said)
    assert getattr(caught.value, "final", None) is True


def test_an_item_outlives_its_supervisor_and_can_be_called_off(queue: Queue):
    order = make(queue, "echo $$ > pid; sleep 300", count=2, cpus=CORES)
    submit(queue, order)
    pid = int(until(queue, lambda: _text(order, "pid"), bool))
    os.kill(queue.keeper(order.key), signal.SIGKILL)
    first, second = until(
        queue, lambda: find(queue, order.key), lambda found: found[1].phase is Phase.OVER
    )
    assert first.phase is Phase.RUNNING
    assert second.cause is EndCause.NODE
    queue.run(queue.batch.cancel([first.id]))
    assert [item.cause for item in find(queue, order.key)] == [EndCause.CANCELLED, EndCause.NODE]
    until(queue, lambda: _lives(pid), lambda lives: not lives)


def test_how_an_item_without_supervisor_ended_is_not_known(queue: Queue):
    order = make(queue, "while [ ! -e go ]; do sleep 0.05; done; exit 3")
    submit(queue, order)
    wait(queue, order, Phase.RUNNING)
    os.kill(queue.keeper(order.key), signal.SIGKILL)
    Path(order.folder, "go").touch()
    (item,) = wait(queue, order, Phase.OVER)
    assert (item.cause, item.exit) == (EndCause.UNKNOWN, None)
    (again,) = find(queue, order.key)
    assert again == item


def test_a_submission_without_supervisor_never_begins(queue: Queue):
    # Whoever submitted was killed after the order was written, and before anybody kept it.
    order = make(queue, "touch ran")
    submit(queue, order)
    wait(queue, order, Phase.OVER)
    (place,) = queue.root.glob("[0-9]*")
    copy = place.with_name("900")
    copy.mkdir()
    for name in ("order.json", "script"):
        (copy / name).write_bytes((place / name).read_bytes())
    both = find(queue, order.key)
    assert [item.cause for item in both] == [EndCause.EXITED, EndCause.NODE]
    assert json.loads((copy / "keeper.json").read_text())["start"] == "never"


def test_politeness_has_an_end(queue: Queue):
    order = make(queue, "trap '' TERM; touch on; while :; do sleep 0.1; done")
    call = queue.batch.submit(order)
    queue.batch.submitted(queue.run(BatchCommand((*call.argv, "--grace=0.5"), call.input)))
    until(queue, lambda: _text(order, "on") is not None, bool)
    (item,) = find(queue, order.key)
    queue.run(queue.batch.cancel([item.id]))
    (over,) = wait(queue, order, Phase.OVER)
    assert over.cause is EndCause.CANCELLED


def test_what_was_over_long_ago_is_forgotten_and_its_id_not_used_again(queue: Queue):
    first = make(queue, "true")
    number = int(submit(queue, first))
    wait(queue, first, Phase.OVER)
    call = queue.batch.listing()
    time.sleep(0.01)
    said = queue.run(BatchCommand((*call.argv, "--keep=0")))
    assert queue.batch.listed(said) == []
    assert not (queue.root / str(number)).exists()
    assert int(submit(queue, make(queue, "true"))) == number + 1


def test_nothing_of_the_submitter_is_held_open(queue: Queue):
    call = queue.batch.submit(make(queue, "sleep 600"))
    subprocess.run(
        call.argv, input=call.input.encode(), stdout=subprocess.PIPE, check=True, timeout=60
    )


def test_many_submissions_at_once_get_ids_of_their_own(queue: Queue):
    calls = [queue.batch.submit(make(queue, "touch ran")) for _ in range(12)]
    running = [
        subprocess.Popen(call.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for call in calls
    ]
    said = [
        process.communicate(call.input)[0] for process, call in zip(running, calls, strict=True)
    ]
    assert len({queue.batch.submitted(Output(0, text)) for text in said}) == 12


@pytest.mark.parametrize("kills", [12, pytest.param(100, marks=pytest.mark.soak)])
def test_whoever_is_killed_nothing_runs_twice_or_unseen(queue: Queue, kills: int):
    rng = random.Random(4)
    began = time.monotonic()
    submit(queue, make(queue, "true"))
    usual = time.monotonic() - began
    orders = [make(queue, "echo ran >> ran; sleep 0.05") for _ in range(kills)]
    keys = [order.key for order in orders]
    # However busy the machine is, the first is killed at once, and the last not at all.
    delays = [0.0, *(rng.uniform(0.2, 1.5) * usual for _ in orders[2:]), None]
    for order, delay in zip(orders, delays, strict=True):
        call = queue.batch.submit(order)
        process = subprocess.Popen(
            call.argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        with contextlib.suppress(BrokenPipeError), process:
            assert process.stdin is not None
            process.stdin.write(call.input.encode())
            process.stdin.close()
            if delay is None:
                process.wait(60)
                continue
            time.sleep(delay)
            # With all that it has started and that has no session of its own yet.
            os.killpg(process.pid, signal.SIGKILL)
        if rng.random() < 0.3:
            _kill_a_keeper(queue, order.key)

    def settled() -> dict[str, list[BatchItem]]:
        found = queue.batch.listed(queue.run(queue.batch.listing()))
        return {key: [item for item in found if item.key == key] for key in keys}

    seen = until(
        queue,
        settled,
        lambda seen: all(i.phase is Phase.OVER for one in seen.values() for i in one),
    )
    causes = Counter(item.cause for items in seen.values() for item in items)
    for order in orders:
        ran = (_text(order, "ran") or "").count("ran")
        items = seen[order.key]
        assert len(items) <= 1
        assert ran <= len(items)
        for item in items:
            assert ran == 1 or item.cause is not EndCause.EXITED
            assert ran == 0 or item.cause is not EndCause.NODE
    # The moments were not all alike.
    assert causes[EndCause.EXITED]
    assert causes[EndCause.EXITED] < len(orders)


def _kill_a_keeper(queue: Queue, key: str) -> None:
    with contextlib.suppress(LookupError, OSError):
        os.kill(queue.keeper(key), signal.SIGKILL)


def _text(order: BatchOrder, name: str) -> str | None:
    path = Path(order.folder, name)
    return path.read_text() if path.exists() else None


def _lives(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
