"""A job at a site: where its files are there, what it is ordered to do, what it leaves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pilotage.base import errors
from pilotage.batch import job
from pilotage.batch.job import BatchJob, ItemFolder
from pilotage.batch.model import SiteSettings
from pilotage.data.stage.model import Digest, WantedFile, WantedFolder
from pilotage.job.model import Allocation, Binding, Call, Command, JobSpec, Python, Script
from pilotage.job.moves import Claim
from pilotage.run import launch

ROOM = ItemFolder("/home/me/.pilotage/p1", "k1", 3)
DATA = "/home/me/.pilotage/p1/s/k1/3/data"
SLURM = SiteSettings(batch="slurm", python="/opt/python3", container="apptainer")


def make(base: Path | str = "/p", *, path: str = "", paths: tuple[str, ...] = (), **spec: Any):
    spec.setdefault("recipe", Command(("true",)))
    claim = Claim(7, 2, 1, "{}", "", 0, "me")
    binding = Binding(path=path, paths=paths)
    return BatchJob(claim, JobSpec(name="fit", **spec), binding, str(base))


def order(one: BatchJob, site: SiteSettings = SLURM) -> dict[str, Any]:
    return job.order(one, ROOM, site, launch.LaunchContext(one.base, python="/usr/bin/python"))


# -- what it reads -------------------------------------------------------------------------------


def test_a_job_reads_its_trigger_and_what_it_names(tmp_path):
    for name in ("raw/a.h5", "cal/1.dat", "cal/2.dat", "maps/deep/x", "maps/y", "a.txt"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    path = f"{tmp_path}/raw/a.h5"
    one = make(tmp_path, path=path, inputs=("cal/*.dat", "{stem}.txt", "maps", "cal/1.dat"))
    found = [os.path.relpath(file, tmp_path) for file in job.wanted(one)]
    assert found[:4] == ["raw/a.h5", "cal/1.dat", "cal/2.dat", "a.txt"]
    assert sorted(found[4:]) == ["maps/deep/x", "maps/y"]


def test_all_files_of_a_set_are_read(tmp_path):
    paths = tuple(f"{tmp_path}/{name}" for name in "ab")
    assert job.wanted(make(tmp_path, path=paths[1], paths=paths)) == [paths[1], paths[0]]


def test_nothing_is_read_unless_it_is_named(tmp_path):
    assert job.wanted(make(tmp_path)) == []


def test_what_fits_nothing_is_told(tmp_path):
    with pytest.raises(errors.NotFound, match=r"cal/\*\.dat"):
        job.wanted(make(tmp_path, inputs=("cal/*.dat",)))


def test_a_file_that_is_named_may_come_late(tmp_path):
    assert job.wanted(make(tmp_path, inputs=("later",))) == [f"{tmp_path}/later"]


def test_too_many_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(job, "_MOST_FILES", 3)
    for number in range(5):
        (tmp_path / f"{number}").touch()
    with pytest.raises(errors.Denied) as caught:
        job.wanted(make(tmp_path, inputs=(".",)))
    assert "mounted" in caught.value.hint


# -- where that is -------------------------------------------------------------------------------


def test_what_is_below_the_project_is_below_its_stand_in():
    assert ROOM.there("/p/raw/a.h5", "/p") == f"{DATA}/raw/a.h5"
    assert ROOM.there("/p/raw/a.h5", "/p/") == f"{DATA}/raw/a.h5"


def test_what_is_elsewhere_keeps_its_name_and_is_not_mixed_up():
    places = {ROOM.there(path, "/p") for path in ("/q/a", "/r/a", "/px/a", "/q/../p2/a")}
    assert len(places) == 4
    assert all(place.startswith(f"{DATA}/.outside/") for place in places)
    assert all(place.endswith("/a") for place in places)


# -- what it is ordered to do --------------------------------------------------------------------


def test_paths_mean_there_what_they_mean_here():
    one = make(
        path="/p/raw/a.h5", cwd="{base}/work", recipe=Command(("fit", "{path}", "{base}/x", "/q")),
        outputs={"out": "out/{stem}.h5", "deep": "/p/deep"}, optional_outputs={"log": "log"},
    )  # fmt: skip
    one.inputs = {"/p/raw/a.h5": Digest("ab" * 32, 3)}
    said = order(one)
    started = said["launch"]
    assert started["argv"] == ["fit", f"{DATA}/raw/a.h5", f"{DATA}/x", "/q"]
    assert started["cwd"] == f"{DATA}/work"
    assert started["dir"] == ROOM.run
    assert said["outputs"] == {"out": f"{DATA}/out/a.h5", "deep": f"{DATA}/deep"}
    assert said["optional"] == {"log": f"{DATA}/log"}
    assert said["inputs"] == [{"path": f"{DATA}/raw/a.h5", "sha256": "ab" * 32, "mode": 0o644}]
    assert one.outputs == {"out": "/p/out/a.h5", "deep": "/p/deep"}
    assert one.optional == {"log": "/p/log"}
    assert not any("/p/" in value for value in started["env"].values())


def test_a_folder_of_the_project_is_one_there():
    assert order(make(cwd="/p/sub"))["launch"]["cwd"] == f"{DATA}/sub"
    assert order(make(cwd="/p"))["launch"]["cwd"] == DATA
    assert order(make(cwd="/scratch"))["launch"]["cwd"] == "/scratch"
    assert order(make(cwd="/pool"))["launch"]["cwd"] == "/pool"


def test_a_program_of_the_project_comes_along(tmp_path):
    """What `pilotage submit -- ./fit in.dat` means is the file beside."""
    program = tmp_path / "bin" / "fit"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for first in (str(program), "{base}/bin/fit"):
        one = make(tmp_path, recipe=Command((first, "in.dat", "/q")))
        assert job.wanted(one) == [str(program)]
        one.inputs = {str(program): Digest("ab" * 32, 3)}
        said = order(one)
        assert said["launch"]["argv"] == [f"{DATA}/bin/fit", "in.dat", "/q"]
        assert said["inputs"][0]["mode"] == 0o755


def test_a_program_of_the_site_is_left_where_it_is(tmp_path):
    for first in ("/bin/sh", "fit", f"{tmp_path}/no/such", f"{tmp_path}x/fit"):
        one = make(tmp_path, recipe=Command((first, "x")))
        assert job.wanted(one) == []
        assert order(one)["launch"]["argv"] == [first, "x"]


@pytest.mark.parametrize("path", ["/elsewhere/x", "../x", "{base}/../x"])
def test_outputs_are_below_the_project(path):
    with pytest.raises(errors.BadRule, match="not below"):
        order(make(outputs={"out": path}))


def test_recipes_travel_by_their_text(tmp_path):
    script, program = tmp_path / "s.sh", tmp_path / "p.py"
    script.write_text("#!/bin/dash -e\ntrue\n")
    program.write_text("print(1)\n")
    said = order(make(recipe=Script(file=str(script))))["launch"]
    assert said["argv"] == ["/bin/dash", "-e", f"{ROOM.run}/script"]
    assert said["files"]["script"] == "#!/bin/dash -e\ntrue\n"
    said = order(make(recipe=Python(file=str(program))))["launch"]
    assert said["argv"][:2] == ["/opt/python3", f"{ROOM.lib}/call.py"]
    assert said["files"]["recipe.py"] == "print(1)\n"
    assert str(tmp_path) not in " ".join(said["argv"])


def test_a_function_that_travels_by_its_text_names_no_file_of_the_hub(tmp_path):
    """A client on another machine tells the path of its own file: the hub never reads that."""
    far = make(tmp_path, recipe=Call("f", source="def f(): ...\n", file="/home/ann/fit.py"))
    far.bounds = str(tmp_path)
    assert order(far)["launch"]["files"]["recipe.json"]
    far = make(tmp_path, recipe=Call("f", file="/home/ann/fit.py"))
    far.bounds = str(tmp_path)
    with pytest.raises(errors.Denied, match="may not name"):
        order(far)


def test_an_image_is_run_by_what_the_site_has():
    said = order(make(image="docker://x"))["launch"]["sandbox"]
    assert (said["kind"], said["image"]) == ("apptainer", "docker://x")
    assert order(make())["launch"]["sandbox"] is None


def test_data_is_seen_in_a_container():
    for spec in ({"outputs": {"out": "x"}}, {"cwd": "{base}"}, {"optional_outputs": {"x": "x"}}):
        assert order(make(image="x", **spec))["launch"]["sandbox"]["writable"] == [DATA]
    # Nothing makes the folder then.
    assert "writable" not in order(make(image="x", cwd="/scratch"))["launch"]["sandbox"]


def test_data_that_is_mounted_is_not_brought():
    one = make(path="/p/a", data="mounted", image="x", cwd="{base}")
    one.inputs = {"/p/a": Digest("ab" * 32, 3)}
    one.mount = {"host": "h", "port": 1}
    said = order(one)
    assert said["launch"]["sandbox"] == {"kind": "apptainer", "image": "x"}
    assert said["inputs"] == []
    assert said["mount"] == {"host": "h", "port": 1, "path": DATA}


@pytest.mark.parametrize(
    "asked,usual,words",
    [
        (Allocation(), "srun", ["true"]),
        (Allocation(nodes=2, tasks=3), "none", ["true"]),
        (Allocation(nodes=2, tasks=3), "srun",
         ["srun", "--ntasks=6", "--nodes=2", "--kill-on-bad-exit=1", "true"]),
        (Allocation(nodes=2, tasks=3), "mpirun", ["mpirun", "-n", "6", "true"]),
        (Allocation(tasks=2, launcher="mpirun"), "srun", ["mpirun", "-n", "2", "true"]),
        (Allocation(nodes=2, launcher="none"), "srun", ["true"]),
    ],
)  # fmt: skip
def test_tasks_of_a_parallel_job_are_started(asked, usual, words):
    site = SiteSettings(batch="slurm", launcher=usual)
    assert order(make(allocation=asked), site)["launch"]["argv"] == words


# -- what it leaves ------------------------------------------------------------------------------


def test_what_was_left_comes_home():
    one = make(outputs={"file": "out/a", "folder": "out/b"}, optional_outputs={"log": "log"})
    order(one)
    found = {
        "file": {"size": 3, "sha256": "ab" * 32},
        "folder": {"files": {"x/y": {"size": 4, "sha256": "cd" * 32}}},
        "log": None,
    }
    assert job.homeward(one, ROOM, found) == [
        WantedFile(remote=f"{DATA}/out/a", local="/p/out/a", size=3, sha256="ab" * 32),
        WantedFolder(remote=f"{DATA}/out/b", local="/p/out/b", files={"x/y": Digest("cd" * 32, 4)}),
    ]
    assert job.lacking(one, found) == ()


def test_what_was_not_left_is_named():
    one = make(outputs={"file": "out/a", "folder": "out/b"}, optional_outputs={"log": "log"})
    order(one)
    assert job.lacking(one, {"file": None}) == ("/p/out/a", "/p/out/b")


def test_the_folder_of_a_worker_is_below_that_of_its_job():
    one = make(recipe=Call("f", source="x"))
    assert order(one)["launch"]["scratch"] == f"{ROOM.folder}/scratch"
    chosen = make(recipe=Call("f", source="x"), cwd="sub")
    assert "scratch" not in order(chosen)["launch"]
