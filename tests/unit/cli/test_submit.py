"""From words, directives and job files to the definition of a job."""

from __future__ import annotations

import json

import pytest

from pilotage.base import errors
from pilotage.cli import directives, main, submit
from pilotage.cli.submit import SubmitOptions
from pilotage.job.model import Command, JobSpec, Limit, Notebook, Python, Script
from pilotage.match import submission


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_command_keeps_its_braces_and_runs_here(tmp_path):
    made = submit.build(("awk", "{print $1}"), submit.NO_OPTIONS).spec
    assert made.recipe == Command(("awk", "{{print $1}}"))
    assert made.cwd == str(tmp_path)
    assert made.name == "awk"


def test_a_program_beside_me_is_named_in_full(tmp_path):
    made = submit.build(("./fit", "x"), submit.NO_OPTIONS).spec
    assert made.recipe == Command((f"{tmp_path}/fit", "x"))


def test_a_program_that_is_not_there_is_not_found():
    with pytest.raises(errors.NotFound, match="echoo"):
        submit.build(("echoo hi",), submit.NO_OPTIONS)


def test_options_reach_the_definition(tmp_path):
    made = submit.build(
        ("true",),
        SubmitOptions(
            name="n", cpus=2, memory="1G", time="1h", gpus=1, env=("A=1", "B={x}"), cwd="sub",
            priority=3, limit="camera:2", retries=4, output=("out/a.txt", "b.txt"),
        ),
    ).spec  # fmt: skip
    assert (made.name, made.priority, made.retry.attempts) == ("n", 3, 5)
    assert (made.resources.cpus, made.resources.memory, made.resources.time) == (2, 10**9, 3600.0)
    assert made.env == {"A": "1", "B": "{{x}}"}
    assert made.cwd == f"{tmp_path}/sub"
    assert made.outputs == {"a.txt": f"{tmp_path}/out/a.txt", "b.txt": f"{tmp_path}/b.txt"}
    assert submission.limit_key(made) == "camera:2"


def test_where_a_job_may_run_reaches_the_definition(tmp_path):
    asked = SubmitOptions(requirements="memory >= 64G", rank="cpus", image="python:3.12", disk="1G")
    made = submit.build(("true",), asked).spec
    assert (made.requirements, made.rank, made.image) == ("memory >= 64G", "cpus", "python:3.12")
    assert made.resources.disk == 10**9
    (tmp_path / "run.sh").write_text("#PILOTAGE --requirements 'gpus >= 1' --image a.sif\n")
    made = submit.build(("run.sh",), SubmitOptions(image="b.sif")).spec
    assert (made.requirements, made.image) == ("gpus >= 1", "b.sif")


def test_a_mistake_in_where_a_job_may_run_is_told_with_its_option(tmp_path):
    with pytest.raises(errors.UsageError) as caught:
        submit.build(("true",), SubmitOptions(requirements="memory > 64m"))
    assert caught.value.message == (
        "`--requirements`: at character 10 of the expression: `64m` may be minutes or megabytes"
    )
    assert caught.value.hint == "write `64min` or `64M`"
    recipe = {"kind": "command", "argv": ["true"]}
    (tmp_path / "j.json").write_text(json.dumps({"name": "n", "recipe": recipe, "rank": "cpus >"}))
    with pytest.raises(errors.UsageError, match="`--rank`: at character 7"):
        submit.build(("j.json",), submit.NO_OPTIONS)


@pytest.mark.parametrize(
    "options",
    [
        SubmitOptions(cpus=0), SubmitOptions(gpus=-1), SubmitOptions(memory="lots"),
        SubmitOptions(time="soon"),
        SubmitOptions(limit="camera:x"), SubmitOptions(limit=":2"), SubmitOptions(env=("=1",)),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_a_usage_error(options):
    with pytest.raises(errors.UsageError):
        submit.build(("true",), options)


def test_a_script_is_taken_as_it_is_now(tmp_path):
    (tmp_path / "run.sh").write_text("#!/bin/sh\n#PILOTAGE --cpus 2 --tag night\necho hi\n")
    draft = submit.build(("run.sh",), SubmitOptions(cpus=1))
    assert isinstance(draft.spec.recipe, Script)
    assert "echo hi" in draft.spec.recipe.source
    assert draft.spec.resources.cpus == 1
    assert draft.tag == "night"


def test_files_of_other_kinds(tmp_path):
    (tmp_path / "a.py").write_text("print(1)\n")
    (tmp_path / "a.ipynb").write_text("{}")
    assert submit.build(("a.py",), submit.NO_OPTIONS).spec.recipe == Python(file=f"{tmp_path}/a.py")
    assert submit.build(("a.ipynb",), submit.NO_OPTIONS).spec.recipe == Notebook(
        file=f"{tmp_path}/a.ipynb"
    )
    with pytest.raises(errors.NotFound):
        submit.build(("b.sh",), submit.NO_OPTIONS)


def test_a_job_file_is_checked_and_options_beat_it(tmp_path):
    file = tmp_path / "job.json"
    body = {"name": "hi", "recipe": {"kind": "command", "argv": ["echo"]}, "limit": {"key": "k"}}
    file.write_text(json.dumps(body))
    made = submit.build(("job.json",), SubmitOptions(name="ho")).spec
    assert (made.name, made.cwd, made.limit) == ("ho", "", Limit("k"))
    file.write_text(json.dumps(body | {"colour": "red"}))
    with pytest.raises(errors.ConfigError, match="colour"):
        submit.build(("job.json",), submit.NO_OPTIONS)


def test_directives_of_slurm_are_understood():
    found = directives.read(
        "#!/bin/bash\n"
        "#SBATCH --job-name=fit -c 4 --mem=2G\n"
        "#SBATCH -t 90  # minutes\n"
        "#SBATCH --gres=gpu:a100:2 -o out.txt --partition debug\n"
        "\n"
        "module load x\n"
        "#SBATCH --mem=1T\n",
        (),
    )
    assert found.values == {
        "name": "fit", "cpus": "4", "memory": "2GiB", "time": "5400.0", "gpus": "2",
    }  # fmt: skip
    assert found.ignored == ("--output", "--partition")


@pytest.mark.parametrize(
    "written, seconds",
    [("30", 1800), ("1:30", 90), ("1:00:00", 3600), ("2-0", 172800), ("1-12:30", 131400)],
)
def test_times_of_slurm(written, seconds):
    assert float(directives.read(f"#SBATCH -t {written}\n", ()).values["time"]) == seconds


@pytest.mark.parametrize(
    "line", ["#PILOTAGE --colour red", "#SBATCH --time=soon", "#SBATCH --mem=lots", "#PILOTAGE 'x"]
)
def test_directives_that_make_no_sense_name_their_line(line):
    with pytest.raises(errors.UsageError):
        directives.read(f"#!/bin/sh\n{line}\n", ("cpus", "tag"))


@pytest.mark.parametrize(
    "words, shielded",
    [
        (["echo", "--json"], ["--", "echo", "--json"]),
        (["--cpus", "2", "echo", "-n"], ["--cpus", "2", "--", "echo", "-n"]),
        (["--wait", "--name=x", "ls"], ["--wait", "--name=x", "--", "ls"]),
        (["-n", "--", "ls"], ["-n", "--", "ls"]),
        (["--help"], ["--help"]),
        (["--cpus"], ["--cpus"]),
    ],
)
def test_options_of_the_command_are_not_ours(words, shielded):
    assert main._shielded(words) == shielded


def test_values_go_to_the_fields_of_their_names_wherever_these_are():
    made = JobSpec(Command(("true",)), "x").changed(
        {"cpus": 4, "nodes": 2, "site": "kit", "name": "y"}
    )
    assert (made.resources.cpus, made.allocation.nodes) == (4, 2)
    assert (made.site, made.name) == ("kit", "y")
    assert made.changed({}) == made
    with pytest.raises(TypeError):
        made.changed({"colour": "red"})
