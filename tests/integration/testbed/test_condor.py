from __future__ import annotations

import pytest

from testbed.condor import Condor

JOB = """\
executable = /usr/bin/python3
arguments = "-c 'import os; print(os.getuid(), os.getcwd())'"
output = output
log = log
queue
"""


def test_a_job_runs_in_a_folder_that_both_sides_see(condor: Condor):
    folder = condor.shared / "hello"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "job").write_text(f"initialdir = {folder}\n{JOB}")
    condor.run("condor_submit", str(folder / "job"))
    condor.run("condor_wait", "-wait", "30", str(folder / "log"))
    assert (folder / "output").read_text().split() == [str(condor.user.uid), str(folder)]


@pytest.mark.slow
def test_the_pool_remembers_its_jobs(condor: Condor):
    (condor.shared / "held").write_text("executable = /bin/true\nhold = true\nqueue\n")
    told = condor.run("condor_submit", "-terse", str(condor.shared / "held"))
    job = told.split()[0]
    condor.stop()
    condor.start()
    assert condor.run("condor_q", job, "-af", "JobStatus").strip() == "5"
    condor.run("condor_rm", job)
