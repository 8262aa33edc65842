"""Any source of work, any place to run: each cell on real engines, and those that do not work yet.

All cells of a place are tried at once: while no place takes work they wait and say why; then only
that place does, and they begin there; their logs are followed; their outputs come home; others are
cancelled. What `matrix.toml` tells of cells that do not work must be so.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import pytest

from docs._ext import matrix
from pilotage.base.errors import IllegalTransition, PilotageError
from pilotage.job import machine
from pilotage.job.model import State
from pilotage.job.records import Selection
from testbed.condor import root as condor_root
from testbed.rabbit import Rabbit
from testbed.slurm import Slurm
from testbed.ssh import Sshd
from tests.rigs.matrix import sources
from tests.rigs.matrix.bed import POOL, Bed
from tests.rigs.matrix.sources import Work
from tests.suite import every, suites, system
from tests.suite.every import Case

MATRIX = matrix.read()
#: Cells of each row that a run of all tests tries; the next seed has others.
_SOME = 3
#: What `explain` says while no place takes work.
_WAITS = {
    "here": "it needs cpus = 1, and none is free",
    "pilot": "it needs cpus = 1, and none is free",
    "slurm": "PENDING: PartitionDown",
    "ssh": "PENDING: PartitionDown",
    "edge": "PENDING: PartitionDown",
    "dialled": "PENDING: PartitionDown",
    "pool": "pool burst",
    "htcondor": "idle",
    "htcondor-edge": "idle",
}
#: What it says at least where the batch system's reason reaches the hub by chance.
_BATCH_JOB = r"(slurm|htcondor) job [\d.]+ at site-"
#: How a place is called where a job ran.
_RAN = {
    "here": r"local$",
    "pilot": r"far \(pilot",
    "slurm": r"slurm \(slurm job",
    "ssh": r"ssh \(slurm job",
    "edge": r"site-",
    "dialled": r"site-",
    "pool": r"slurm \(pilot",
    "htcondor": r"htcondor \(htcondor job",
    "htcondor-edge": r"site-",
}
#: What a cell may lack of its log.
LOGS = {"log", "follow"}
#: Works by their sources.
Works = dict[str, Work]


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest, slurm: Slurm, sshd: Sshd, rabbit: Rabbit) -> Iterator[Bed]:
    condor = request.getfixturevalue("condor") if condor_root.ROOT.exists() else None
    with ExitStack() as stack:
        made = Bed(stack, slurm, sshd, rabbit, condor)
        sources.prepare(made)
        made.up()
        yield made


@pytest.fixture
def place(request: pytest.FixtureRequest, bed: Bed) -> str:
    """Name a place; a test of one that this machine cannot have is skipped."""
    if not bed.has(request.param):
        system.needs("condor root")
    return str(request.param)


def chosen(place: str, seed: int) -> list[str]:
    """Choose the sources that are tried at a place: a few places of each, which go round."""
    places = list(MATRIX.places)
    return [
        source
        for row, source in enumerate(MATRIX.sources)
        if (places.index(place) - row - seed) % len(places) < _SOME
    ]


@pytest.mark.slow
@pytest.mark.parametrize("place", MATRIX.places, indirect=True)
def test_some_cells(bed: Bed, place: str):
    _try(bed, place, chosen(place, suites.seed()), "some")


@pytest.mark.soak
@pytest.mark.parametrize("place", MATRIX.places, indirect=True)
def test_every_cell(bed: Bed, place: str):
    _try(bed, place, list(MATRIX.sources), "all")


def test_all_cells_have_their_turn():
    """Each run tries some of every row and of every column; a few runs try all."""
    places, seeds = list(MATRIX.places), range(len(MATRIX.places))
    for seed in seeds:
        cells = [(source, place) for place in places for source in chosen(place, seed)]
        assert {source for source, _ in cells} == set(MATRIX.sources)
        assert {place for _, place in cells} == set(places)
    tried = {(one, place) for place in places for seed in seeds for one in chosen(place, seed)}
    assert len(tried) == len(MATRIX.sources) * len(places)


def test_the_table_tells_of_cells_that_there_are():
    cells = {(source, place) for source in MATRIX.sources for place in MATRIX.places}
    measured = {(source, place) for source, row in MATRIX.seconds.items() for place in row}
    assert MATRIX.missing.keys() <= cells
    assert MATRIX.lacking.keys() <= cells - MATRIX.missing.keys()
    assert measured <= cells - MATRIX.missing.keys()


# -- one place -------------------------------------------------------------------------------------


def _try(bed: Bed, place: str, some: Sequence[str], run: str) -> None:
    """Try cells of one place, all at once."""
    good = [one for one in some if (one, place) not in MATRIX.missing]
    bad = [one for one in some if (one, place) in MATRIX.missing]
    with every.cases() as case, Asked(bed, place, run) as asked, bed.only(place) as take_work:
        works = asked.ask(good, case)
        _wait_well(asked, works, case)
        take_work()
        _gaps(asked, bad, case)
        _run_well(asked, works, case)
        _cancel_well(asked, asked.ask(good, case, more="-c"), case)


class Asked:
    """The works of a run, which all end with it."""

    def __init__(self, bed: Bed, place: str, run: str) -> None:
        self.bed, self.place, self._run = bed, place, run
        self._works: list[Work] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for work in self._works:
            self.bed.open(work.name)
            if flow := work.flow():
                self.bed.hub.cancel(flow)
        jobs = [job for work in self._works if (job := work.job())]
        for job in jobs:
            # Those that have ended cannot be cancelled, and some end just now.
            with suppress(IllegalTransition), self.bed.project() as project:
                project.cancel([job])
        self.bed.wait(lambda: all(self.bed.job(job).state in machine.FINAL for job in jobs))

    def cell(self, source: str) -> str:
        """Name a cell for people."""
        return f"{source} at {self.place}"

    def one(self, source: str, more: str = "") -> Work:
        """Ask for one work."""
        work = sources.ask(self.bed, source, self.place, self.name(source, more))
        self._works.append(work)
        return work

    def name(self, source: str, more: str = "") -> str:
        """Name a work."""
        return f"{source}-{self.place}-{self._run}{more}"

    def ask(self, some: Sequence[str], case: Case, more: str = "") -> Works:
        """Ask for the works of some sources; return those that were taken."""
        found: Works = {}
        for source in some:
            with case(self.cell(source)):
                found[source] = self.one(source, more)
        return found

    def lacks(self, source: str) -> Mapping[str, str]:
        """Return what a cell lacks."""
        return MATRIX.lacking.get((source, self.place), {})


def _wait_well(asked: Asked, works: Works, case: Case) -> None:
    """Require that works that wait say why."""
    bed, words = asked.bed, _WAITS.get(asked.place, "")
    for source, work in works.items():
        with case(f"{asked.cell(source)}: explain"):
            _says(work, _BATCH_JOB if "reason" in asked.lacks(source) else re.escape(words))
    with case(f"explain at {asked.place}"):
        jobs = [job for work in works.values() if (job := work.job())]
        said = bed.say("explain", *map(str, jobs)) if jobs else ""
        assert [job for job in jobs if f"job {job} is " not in said] == [], said


def _says(work: Work, pattern: str) -> None:
    work.bed.wait(lambda: re.search(pattern, explained(work)))


def explained(work: Work) -> str:
    """Return what `explain` says of a work."""
    if job := work.job():
        return work.bed.explained(job)
    flow = work.flow()
    return work.bed.say("flow", "explain", str(flow)) if flow else ""


def _gaps(asked: Asked, some: Sequence[str], case: Case) -> None:
    """Require that cells which do not work say so, in the words that are told of them."""
    for source in some:
        gap = MATRIX.missing[source, asked.place]
        with case(asked.cell(source)):
            if gap.how == "refused":
                with pytest.raises((PilotageError, AssertionError)) as told:
                    asked.one(source)
                assert gap.says in str(told.value)
            else:
                _never_begins(asked.one(source), gap.says)


def _never_begins(work: Work, says: str) -> None:
    bed = work.bed
    bed.wait(lambda: says in explained(work) or bed.lines(work.name)["began"])
    assert not bed.lines(work.name)["began"], "it works: take it out of matrix.toml"


def _run_well(asked: Asked, works: Works, case: Case) -> None:
    """Require that works begin, that their logs can be followed, and that all comes home."""
    bed = asked.bed
    _begin(asked, works, case)
    followed = {one: work for one, work in works.items() if not asked.lacks(one).keys() & LOGS}
    with case(f"logs -f at {asked.place}"):
        with bed.follow([work.job() for work in followed.values()]) as said:
            for source, work in followed.items():
                with case(f"{asked.cell(source)}: logs -f"):
                    _shown(bed, f"began {work.name}\n", said)
            _no_logs(asked, works, case)
            for work in works.values():
                bed.open(work.name)
            for source, work in works.items():
                with case(asked.cell(source)):
                    _ends_well(work)
        ended = said()
        assert [one for one, work in followed.items() if f"ended {work.name}\n" not in ended] == []
    for source, work in works.items():
        with case(f"{asked.cell(source)}: log"):
            whole = f"began {work.name}\nended {work.name}\n"
            assert "log" in asked.lacks(source) or bed.log(work.job()) == whole


def _shown(bed: Bed, line: str, said: Callable[[], str]) -> None:
    bed.wait(lambda: line in said())


def _begin(asked: Asked, works: Works, case: Case) -> None:
    """Wait until works have begun; those that do not are left out."""
    for source, work in [*works.items()]:
        with case(f"{asked.cell(source)} begins"):
            del works[source]
            _begun(work)
            works[source] = work


def _begun(work: Work, times: int = 1) -> None:
    # Who asks for the job of a timer's rule takes the rule away: it is to fire once.
    work.bed.wait(lambda: (work.job(), work.bed.lines(work.name)["began"] == times)[1])


def _no_logs(asked: Asked, works: Works, case: Case) -> None:
    for source, work in works.items():
        lacks, job = asked.lacks(source), work.job()
        with case(f"{asked.cell(source)}: no log yet"):
            assert "log" not in lacks or not job, "it is a job: take `log` out of matrix.toml"
            assert "follow" not in lacks or not asked.bed.log(job), "take `follow` out"


def _ends_well(work: Work) -> None:
    """Require that a work ran once, and that its output is where it belongs."""
    bed, text = work.bed, "".join(work.parts)
    bed.wait(lambda: work.home() == text)
    bed.wait(lambda: _state(work) in {State.DONE, State.FAILED, State.CANCELLED, State.REJECTED})
    assert _state(work) == State.DONE, bed.told()
    assert bed.lines(work.name) == {"began": 1, "ended": 1}
    if job := work.job():
        assert re.match(_RAN[work.place], bed.where(job)), bed.where(job)


def _state(work: Work) -> str:
    """Return the state of a work as a whole."""
    flow = work.flow()
    return work.bed.hub.flow(flow).state if flow else work.bed.job(work.job()).state


def _cancel_well(asked: Asked, works: Works, case: Case) -> None:
    """Require that `cancel` ends works where they run."""
    bed = asked.bed
    _begin(asked, works, case)
    jobs = [work.job() for work in works.values() if not work.flow()]
    if jobs:
        bed.say("cancel", *map(str, jobs))
    for flow in (work.flow() for work in works.values() if work.flow()):
        bed.say("flow", "cancel", str(flow))
    for source, work in works.items():
        with case(f"{asked.cell(source)}: cancel"):
            _ends_at_once(work)


def _ends_at_once(work: Work) -> None:
    work.bed.wait(lambda: _state(work) == State.CANCELLED)
    work.bed.wait(lambda: not work.bed.alive(work.name))
    assert work.home() == ""


# -- from place to place ---------------------------------------------------------------------------

_CHAIN = """
[rule.chain-far]
files = "chain/*.txt"
run = ["sh", "-c", "tr a-z A-Z < $0 > $1", "{path}", "{base}/middle/{stem}"]
outputs = { middle = "middle/{stem}" }
site = "ssh"
via = "sbatch"

[rule.chain-near]
files = "middle/*"
run = ["sh", "-c", "tr A-Z 0-9 < $0 > $1", "{path}", "{base}/end/{name}"]
outputs = { end = "end/{name}" }
requirements = "site == 'far'"
"""


@pytest.mark.slow
def test_a_file_goes_by_a_rule_to_slurm_and_by_the_next_to_a_pilot_and_comes_home(bed: Bed):
    sources.put(bed.root / "rules" / "chain.toml", _CHAIN)
    names = [f"file{number}" for number in range(5)]
    for name in names:
        sources.put(bed.root / "chain" / f"{name}.txt", "abc\n")
    for name in names:
        _appears(bed, bed.root / "end" / name, "012\n")
    with bed.project() as project:
        far, near = (project.jobs(Selection(name=f"chain-{one}")) for one in ("far", "near"))
    bed.wait(lambda: all(bed.job(one.id).state == State.DONE for one in (*far, *near)))
    assert {one.parent for one in near} == {one.id for one in far}
    assert [one.attempt for one in (*far, *near)] == [1] * 10
    assert all(re.match(_RAN["ssh"], bed.where(one.id)) for one in far)
    assert all(re.match(_RAN["pilot"], bed.where(one.id)) for one in near)


def _appears(bed: Bed, file: Path, text: str) -> None:
    bed.wait(lambda: sources.text_of(file) == text)


# -- what dies -------------------------------------------------------------------------------------


def _kill_hub(bed: Bed, _: Works) -> None:
    bed.hub.kill()
    bed.start_hub()


def _kill_agent(bed: Bed, works: Works) -> None:
    for place in {work.place for work in works.values()}:
        bed.agents[place].kill()
        bed.agents[place].start()


def _kill_broker(bed: Bed, _: Works) -> None:
    bed.rabbit.kill()
    bed.rabbit.start()


def _kill_pilot(bed: Bed, _: Works) -> None:
    bed.kill_pilot()
    bed.start_pilot()


def _kill_pool(bed: Bed, works: Works) -> None:
    """Kill every pilot of the pool that runs one of the works.

    Where several die young a pool backs off, and `explain` says how it goes on.
    """
    for pilot in {bed.pilot_of(work.name) for work in works.values()}:
        os.kill(pilot, signal.SIGKILL)
    for work in works.values():
        _is_told_or_begins(work, "nothing is asked for")
    bed.say("pool", "resume", POOL)


def _is_told_or_begins(work: Work, words: str) -> None:
    bed = work.bed
    bed.wait(lambda: words in explained(work) or bed.lines(work.name)["began"] > 1)


KILLS: dict[str, Callable[[Bed, Works], None]] = {
    "hub": _kill_hub, "agent": _kill_agent, "broker": _kill_broker, "pilot": _kill_pilot,
    "pool": _kill_pool,
}  # fmt: skip
#: Which processes have a part in cells of a place; messages come by the broker to all.
KILLED = {
    "here": ("hub", "broker"),
    "pilot": ("hub", "broker", "pilot"),
    "slurm": ("hub", "broker"),
    "ssh": ("hub", "broker"),
    "edge": ("hub", "broker", "agent"),
    "dialled": ("hub", "agent"),
    "pool": ("hub", "broker", "pool"),
    "htcondor": ("hub", "broker"),
    "htcondor-edge": ("hub", "broker", "agent"),
}


@pytest.mark.soak
@pytest.mark.parametrize(
    "place, process", [(place, one) for place, those in KILLED.items() for one in those],
    indirect=["place"],
)  # fmt: skip
def test_killed_once_in_every_cell(bed: Bed, place: str, process: str):
    good = [one for one in MATRIX.sources if (one, place) not in MATRIX.missing]
    with (
        every.cases() as case,
        Asked(bed, place, f"kill-{process}") as asked,
        bed.only(place) as take_work,
    ):
        take_work()
        works = asked.ask(good, case)
        _begin(asked, works, case)
        KILLS[process](bed, works)
        again = process in ("pilot", "pool")
        for source, work in works.items():
            with case(f"{asked.cell(source)} begins again"):
                # What a dead pilot ran begins under a new attempt.
                _begun(work, 2 if again else 1)
                bed.open(work.name)
        for source, work in works.items():
            with case(asked.cell(source)):
                _ends_once(work)


def _ends_once(work: Work) -> None:
    bed = work.bed
    bed.wait(lambda: work.home() == "".join(work.parts))
    bed.wait(lambda: _state(work) == State.DONE)
    assert bed.lines(work.name)["ended"] == 1
    if job := work.job():
        # An attempt at a pilot that dies next may be over before it begins.
        assert bed.lines(work.name)["began"] <= bed.job(job).attempt


# -- how long it takes -----------------------------------------------------------------------------

_TIMES = 5


@pytest.mark.soak
@pytest.mark.parametrize("place", KILLED, indirect=True)
def test_seconds_from_asking_to_output_home(bed: Bed, place: str):
    found: dict[str, float] = {}
    good = [one for one in MATRIX.sources if (one, place) not in MATRIX.missing]
    with (
        every.cases() as case,
        Asked(bed, place, "time") as asked,
        bed.only(place) as take_work,
    ):
        take_work()
        for source in good:
            with case(asked.cell(source)):
                # The first one warms up.
                some = [_seconds(asked, source, number) for number in range(_TIMES + 1)][1:]
                found[source] = statistics.median(some)
    matrix.MEASURED.mkdir(parents=True, exist_ok=True)
    (matrix.MEASURED / f"{place}.json").write_text(json.dumps(found))


def _seconds(asked: Asked, source: str, number: int) -> float:
    bed, more = asked.bed, f"-{number}"
    bed.open(asked.name(source, more))
    begin = time.monotonic()
    work = asked.one(source, more)
    bed.wait(lambda: work.home() == "".join(work.parts), step=0.005)
    end = time.monotonic()
    bed.wait(lambda: _state(work) == State.DONE)
    # A timer is not asked: it ticks.
    return bed.ran(work.job()) if source == "timer" else end - begin
