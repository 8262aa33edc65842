from __future__ import annotations

from pathlib import Path

import pytest

from pilotage.site.batch.model import Call
from pilotage.site.batch.slurm import Slurm
from testbed.slurm import Slurm as Cluster
from tests.beds import slurm  # noqa: F401
from tests.contract.batch import beds
from tests.contract.batch.life import Bed, Life

CAN = frozenset({"time", "signal", "hold", "wait", "step", "ended", "cause"})
STRANGE = "odd name; $(id)\nof two lines"


class TestSlurm(Life):
    @pytest.fixture
    def bed(self, slurm: Cluster, tmp_path: Path) -> Bed:  # noqa: F811
        return beds.Commands(
            Slurm(), tmp_path, slurm.environment(), can=CAN, waits=("--begin=now+1hour",),
            holds=("--hold",), stranger=Call(
                ("sbatch", f"--job-name={STRANGE}", "--output=/dev/null"), "#!/bin/sh\ntrue\n"
            ),
        )  # fmt: skip
