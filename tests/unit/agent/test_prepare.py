"""From a message to what runs, and what is kept of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pilotage.agent import staging
from pilotage.agent.app.model import Application, Config, Parameter, Staging
from pilotage.agent.staging import PreparedJob
from pilotage.base import errors
from pilotage.batch import job as guest
from pilotage.batch.job import BatchJob, ItemFolder
from pilotage.batch.model import SiteSettings
from pilotage.bus.model import Input, Job, Output
from pilotage.job.model import Allocation, Binding, Command, JobSpec
from pilotage.job.moves import Claim
from pilotage.run import launch

APP = Application(
    executable="/opt/sim",
    sha256="0" * 64,
    argv=("{n}", ("--label", "{label}"), "{config}"),
    env={"A": "{x}"},
    parameter={
        "n": Parameter(kind="integer"),
        "label": Parameter(kind="text", pattern=".*", required=False),
    },
    config=Config(),
    preprocess=("/opt/before", "{n}"),
    postprocess=("/opt/after", "{job}"),
    staging=Staging(hosts=("data.example.org",)),
)
JOB = Job(site="here", application="sim", parameters={"n": 3})


def test_the_message_wins_over_the_config():
    filled = staging.fill(APP, JOB, PreparedJob(parameters={"n": "5", "label": "{n} $(id)"}), 7)
    assert filled.argv == ("/opt/sim", "3", "--label", "{n} $(id)")
    assert (filled.preprocess, filled.postprocess) == (("/opt/before", "3"), ("/opt/after", "7"))


def test_what_a_config_says_is_checked_as_if_it_had_been_sent():
    for said in ({"m": "1"}, {"n": "x"}, {"label": "a\nb"}):
        job = msgspec.structs.replace(JOB, parameters={} if "n" in said else {"n": 3})
        with pytest.raises(errors.Denied):
            staging.fill(APP, job, PreparedJob(parameters=said), 7)


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"enabled": False}, "disabled"),
        ({"users": ("CN=bob",)}, "may not use"),
        ({"staging": Staging()}, "cannot be used"),
        ({"parameter": {}}, "no parameter"),
    ],
)
def test_a_job_is_judged_by_what_holds_now(change, reason):
    job = msgspec.structs.replace(JOB, inputs=(Input(url="https://data.example.org/a"),))
    staging.check(APP, job, "CN=alice")
    with pytest.raises(errors.Denied, match=reason):
        staging.check(msgspec.structs.replace(APP, **change), job, "CN=alice")


def test_outputs_go_where_they_still_may():
    job = msgspec.structs.replace(JOB, outputs=(Output(url="https://data.example.org/out"),))
    staging.check_outputs(APP, job)
    with pytest.raises(errors.Denied):
        staging.check_outputs(msgspec.structs.replace(APP, staging=Staging()), job)


async def test_the_config_of_a_message_is_a_file_of_the_job(tmp_path):
    folder, aside = tmp_path / "job", tmp_path / "in"
    folder.mkdir()
    aside.mkdir()
    (tmp_path / "elsewhere").write_text("kept")
    (folder / staging.CONFIG).symlink_to(tmp_path / "elsewhere")
    job = msgspec.structs.replace(JOB, parameters={}, config="n = 5\nlabel = a\r\n")
    with pytest.raises(errors.Denied):
        staging.write_config(job, str(folder), str(aside))
    (folder / staging.CONFIG).unlink()
    staging.write_config(job, str(folder), str(aside))
    kept = await staging.read_config(APP, job, str(folder))
    assert staging.fill(APP, job, kept, 1).argv == (
        "/opt/sim", "5", "--label", "a", f"./{staging.CONFIG}"
    )  # fmt: skip
    assert (tmp_path / "elsewhere").read_text() == "kept"
    assert await staging.read_config(APP, JOB, str(folder)) == PreparedJob()


def test_what_is_kept_is_read_back(tmp_path):
    file = tmp_path / "edge" / "12.1.json"
    assert staging.read(file) is None
    kept = PreparedJob(parameters={"a": 1, "b": "\udcff"}, words=("-x",), leaves=True)
    staging.write(file, PreparedJob())
    staging.write(file, kept)
    assert staging.read(file) == kept
    assert [one.name for one in file.parent.iterdir()] == ["12.1.json"]
    file.write_text("{")
    with pytest.raises(errors.PilotageError):
        staging.read(file)


def test_the_batch_job_runs_in_the_folder_as_it_was_said(tmp_path):
    """Braces are no templates, no path is moved, and a container may write there."""
    folder = str(tmp_path / "{job}")
    spec = JobSpec(Command(("x",)), "sim", allocation=Allocation(launcher="none"), image="old")
    filled = staging.fill(
        msgspec.structs.replace(APP, container="image.sif", executable=f"{tmp_path}/{{a}}"),
        JOB, PreparedJob(parameters={"label": "{n}"}), 7,
    )  # fmt: skip
    (tmp_path / "{a}").touch()
    made = staging.spec_of(spec, filled, folder)
    one = BatchJob(Claim(7, 1, 1, "", "", 0, ""), made, Binding(), str(tmp_path), folder=folder)
    room = ItemFolder("/shared", "key", 0)
    item = guest.order(
        one, room, SiteSettings(batch="local"), launch.LaunchContext(base=str(tmp_path))
    )
    started = item["launch"]
    assert list(started["argv"]) == [f"{tmp_path}/{{a}}", "3", "--label", "{n}"]
    assert (started["cwd"], started["env"]["A"]) == (folder, "{x}")
    assert started["sandbox"]["image"] == "image.sif"
    assert started["sandbox"]["writable"] == [folder]
    assert Path(one.folder) == tmp_path / "{job}"
