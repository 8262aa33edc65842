"""Fixtures for real systems, each started once a session when a test first asks for it.

Name this module in `pytest_plugins`, or import the fixture: `from tests.beds import slurm`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.slurm import Slurm
from tests import system


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    system.needs("root", "slurmctld", "slurmd", "munged", "sbatch")
    with Slurm() as cluster:
        yield cluster
