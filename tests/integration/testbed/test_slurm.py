from __future__ import annotations

from testbed.slurm import Slurm
from tests.beds import slurm  # noqa: F401


def test_a_job_runs(slurm: Slurm):  # noqa: F811
    output = slurm.folder / "hello.out"
    slurm.run(
        "sbatch", "--wait", f"--output={output}", "--wrap", "echo hello from $SLURMD_NODENAME"
    )
    assert output.read_text().startswith("hello from n")
