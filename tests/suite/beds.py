"""Fixtures for real systems, each started once a session when a test first asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.condor import Condor, root
from testbed.gridengine import GridEngine
from testbed.network import Sites
from testbed.rabbit import Rabbit
from testbed.slurm import Slurm
from testbed.ssh import Sshd
from tests.suite import system


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    system.needs("root", "slurmctld", "slurmd", "munged", "sbatch")
    with Slurm() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def slurm_accounting() -> Iterator[Slurm]:
    system.needs("root", "slurmctld", "slurmd", "munged", "sbatch", "slurmdbd", "mariadbd")
    with Slurm(accounting=True) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def sshd() -> Iterator[Sshd]:
    system.needs("root", "sshd", "ssh", "ssh-keygen")
    with Sshd() as servers:
        yield servers


@pytest.fixture(scope="session")
def condor() -> Iterator[Condor]:
    system.needs("root", "debootstrap", "unshare", "setpriv", "condor root")
    with Condor() as pool:
        yield pool


@pytest.fixture(scope="session")
def gridengine() -> Iterator[GridEngine]:
    system.needs("root", "sge_qmaster", "sge_execd", "qsub")
    with GridEngine() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def sites() -> Iterator[Sites]:
    system.needs("root", "ip", "nsenter", "sshd", "slurmctld", "slurmd", "munged", "sbatch")
    with Sites(slurm=True) as sites:
        yield sites


def _no_condor_root() -> str | None:
    if root.ROOT.exists():
        return None
    return "no Debian with HTCondor (python -m testbed prepare makes it in two minutes)"


system.SPECIAL["condor root"] = _no_condor_root


@pytest.fixture(scope="session")
def rabbit() -> Iterator[Rabbit]:
    system.needs("root", "rabbitmq-server", "epmd")
    with Rabbit() as broker:
        yield broker
