from __future__ import annotations

from testbed.slurm import Slurm


def test_a_job_runs(slurm: Slurm):
    output = slurm.folder / "hello.out"
    slurm.run(
        "sbatch", "--wait", f"--output={output}", "--wrap", "echo hello from $SLURMD_NODENAME"
    )
    assert output.read_text().startswith("hello from n")
