"""The programs of the ATLAS example: no event is lost or made up; the peak is where it must be."""

from __future__ import annotations

import hashlib
import json
import math
import random
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from examples.atlas import atlas
from examples.atlas.programs import generate, histogram, merge, simulate
from pilotage.agent.app import files
from pilotage.bus import balsam
from pilotage.bus.model import Chain
from pilotage.flow import model, read

HERE = Path(generate.__file__).parents[1]
EVENTS = 4000


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ranks(count: int, seed: int = 7) -> None:
    """Simulate as so many ranks would, one after another."""
    Path("tracks").mkdir()
    for one in range(count):
        simulate.share(Path("summary.json"), Path("tracks"), seed, one, count)


def chain(events: int = EVENTS, count: int = 3, chunks: int = 4, seed: int = 7) -> bytes:
    """Run all but the last; return what was measured."""
    generate.main(["--events", str(events), "--chunks", str(chunks), "--seed", str(seed)])
    ranks(count, seed)
    merge.main([])
    return Path("muons.dat").read_bytes()


def test_energy_and_momentum_are_conserved():
    dice = random.Random(1)
    for event in generate.collide(dice, 200):
        for px, py, pz, energy in (event[1:5], event[5:9]):
            mass = energy**2 - px**2 - py**2 - pz**2
            assert math.isclose(mass, generate.MUON**2, abs_tol=1e-6 * energy**2)
        assert generate.LOW - 0.01 <= histogram.mass(event) <= generate.HIGH + 0.01


def test_no_event_is_lost_on_the_way(here: Path):
    chain()
    summary = json.loads((here / "summary.json").read_text())
    assert [one["events"] for one in summary["chunks"]] == [1000] * 4
    made = list(simulate.events(here / "summary.json"))
    assert [event[0] for event in made] == list(range(EVENTS))
    merged = json.loads((here / "merged.json").read_text())
    assert merged["events"] == EVENTS
    assert merged["ranks"] == 3
    measured = Path("muons.dat").read_bytes()[len(merge.HEAD) :]
    numbers = [event[0] for event in merge.EVENT.iter_unpack(measured)]
    assert len(numbers) == merged["kept"] == len(set(numbers))
    # A detector loses some of what flies past it, and not most.
    assert 0.5 * EVENTS < merged["kept"] < 0.8 * EVENTS


@pytest.mark.parametrize("count, chunks", [(1, 1), (2, 8), (7, 3), (40, 4)])
def test_the_outcome_is_the_same_for_any_shape(here: Path, count: int, chunks: int):
    one, other = here / "one", here / "other"
    found = []
    for folder, shape in ((one, (3, 4)), (other, (count, chunks))):
        folder.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            found.append(chain(2000, *shape))
    assert found[0] == found[1]


def test_another_seed_is_another_measurement(here: Path):
    texts = []
    for seed in (1, 2):
        folder = here / str(seed)
        folder.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            texts.append(chain(500, seed=seed))
    assert texts[0] != texts[1]


def test_the_peak_is_where_it_must_be(here: Path):
    chain(10_000)
    histogram.main([])
    result = json.loads((here / "result.json").read_text())
    assert abs(result["mass"] - generate.MASS) < 5 * result["mass_error"] < 0.3
    assert 0.3 < result["blur"] < 3
    assert 0.3 < result["chi2_per_freedom"] < 2.5
    # The picture is one that any browser reads, and has a point for each bin.
    picture = ET.parse(here / "mass.svg").getroot()  # noqa: S314 - it is our own
    circles = picture.findall(".//{http://www.w3.org/2000/svg}circle")
    assert len(circles) >= round((histogram.HIGH - histogram.LOW) / histogram.BIN)
    assert f"{result['mass']:.2f}" in (here / "mass.svg").read_text()


@pytest.mark.parametrize("spoil", ["rank", "cut", "twice"])
def test_what_is_missing_or_twice_is_not_merged(here: Path, spoil: str):
    generate.main(["--events", "1000"])
    ranks(3)
    match spoil:
        case "rank":
            (here / "tracks/0001.json").unlink()
        case "cut":
            path = here / "tracks/0002.muons"
            path.write_bytes(path.read_bytes()[:-1])
        case _:
            (here / "tracks/0001.muons").write_bytes((here / "tracks/0000.muons").read_bytes())
            facts = json.loads((here / "tracks/0001.json").read_text())
            first = json.loads((here / "tracks/0000.json").read_text())
            told = json.dumps(facts | {"kept": first["kept"]})
            (here / "tracks/0001.json").write_text(told)
    with pytest.raises(SystemExit):
        merge.main([])
    assert not (here / "muons.dat").exists()


@pytest.mark.parametrize("names", simulate.RANKS)
def test_a_rank_knows_who_it_is(names: tuple[str, str]):
    assert simulate.rank({names[0]: "2", names[1]: "5"}) == (2, 5)
    # A batch script is no rank, whatever Slurm says there.
    assert simulate.rank({"SLURM_PROCID": "0", "SLURM_NTASKS": "5"}) is None


def test_without_a_launcher_it_starts_ranks_of_its_own(here: Path):
    generate.main(["--events", "600"])
    program = [sys.executable, "-I", str(HERE / "programs/simulate.py"), "--ranks", "2"]
    subprocess.run(program, check=True, cwd=here, capture_output=True, timeout=60)
    assert merge.main([]) == 0
    assert json.loads((here / "merged.json").read_text())["ranks"] == 2


@pytest.mark.parametrize("file", sorted(HERE.glob("sites/*/apps/*.toml")), ids=lambda one: one.stem)
def test_applications_are_those_of_the_programs(file: Path):
    app = files.parse(file.read_text(), file.stem, file)
    program = HERE / "programs" / Path(app.executable).name
    assert app.sha256 == hashlib.sha256(program.read_bytes()).hexdigest(), f"of {program.name}"


# -- the workflow ----------------------------------------------------------------------------------


def test_the_workflow_is_one():
    flow = read.read((HERE / "atlas.toml").read_text(), params={"events": "500"})
    assert flow.steps["merge"].needs == ("generate", "simulate")
    assert flow.steps["histogram"].needs == ("merge",)
    assert flow.steps["simulate"].nodes == model.IntRange(1, 4)
    assert flow.steps["simulate"].time == model.IntRange(60, 540)
    known = {file.stem: file for file in HERE.glob("sites/*/apps/*.toml")}
    for step in flow.steps.values():
        app = files.parse(
            known[step.application].read_text(), step.application, known[step.application]
        )
        assert step.parameters.keys() <= app.parameter.keys()


def test_the_workflow_of_one_machine_is_the_same():
    flow = read.read((HERE / "here.toml").read_text(), base=HERE)
    other = read.read((HERE / "atlas.toml").read_text())
    assert flow.outputs == other.outputs
    for name, step in flow.steps.items():
        assert (step.needs, step.outputs) == (other.steps[name].needs, other.steps[name].outputs)


def test_it_can_be_written_in_the_words_of_the_original():
    told = balsam.read_message((HERE / "atlas-argo.json").read_bytes()).message
    assert isinstance(told, Chain)
    flow = read.from_chain(told)
    assert [step.application for step in flow.steps.values()] == [
        "generate", "simulate", "merge", "histogram"
    ]  # fmt: skip
    assert flow.to == "https://data.example.org/atlas/"


def test_it_can_be_written_in_python():
    flow = atlas.each_chunk().definition()
    simulated = flow.steps["simulate"]
    assert simulated.each == "{generate.result.chunks}"
    assert simulated.needs == ("generate",)


def test_what_each_task_leaves_is_merged_too(here: Path):
    """Each chunk has a task, and each task a folder, as a workflow lays them out."""
    whole = chain(1200, chunks=3)
    count = json.loads(Path("summary.json").read_text())["count"]
    apart = here / "apart"
    for one in range(count):
        folder = apart / "simulate" / str(one) / "tracks"
        simulate.main(["--out", str(folder), "--rank", str(one), "--ranks", str(count)])
    merge.main(["--tracks", str(apart), "--out", "apart.dat"])
    assert Path("apart.dat").read_bytes() == whole
