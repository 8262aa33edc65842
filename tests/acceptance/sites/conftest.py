"""Login nodes at which the commands of real batch systems work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.slurm import Slurm
from testbed.ssh import Sshd
from tests.suite import system


@pytest.fixture(scope="session")
def login(slurm: Slurm) -> Iterator[Sshd]:
    """Have who logs in find a Slurm."""
    system.needs("root", "sshd", "ssh", "ssh-keygen")
    with Sshd(env=slurm.env) as servers:
        yield servers
