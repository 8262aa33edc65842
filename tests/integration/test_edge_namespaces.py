"""A site that nobody can log in to, as it is: the agent calls the broker and the data, and no more.

Broker and data are on this machine, the agent on a login node that reaches nothing else of it, and
Slurm's nodes behind that, with no way out.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.enclosed import Enclosed, reaches
from testbed.errors import NotUp
from testbed.fault_proxy import FaultProxy
from testbed.rabbit import Rabbit
from tests import system
from tests.contract.transfer.web import Web, serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site() -> Iterator[Enclosed]:
    system.needs("root", "ip", "iptables", "nsenter", "slurmctld", "slurmd", "munged", "sbatch")
    with Enclosed() as one:
        yield one


@pytest.fixture(scope="module")
def broker(site: Enclosed) -> Iterator[Rabbit]:
    system.needs("rabbitmq-server", "epmd")
    with Rabbit(address=site.broker_address) as one:
        site.let(one.address, one.port)
        yield one


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with serving(tmp_path_factory.mktemp("data")) as one:
        yield one


@pytest.fixture(scope="module")
def data(site: Enclosed, web: Web) -> Iterator[FaultProxy]:
    """The data, by WebDAV, at an address that the login node can call."""
    with FaultProxy(web.port, host=site.data_address) as line:
        site.let(line.host, line.port)
        yield line


@pytest.fixture(scope="module")
def other() -> Iterator[int]:
    """Somebody else on this machine, at all of its addresses."""
    with socket.create_server(("0.0.0.0", 0)) as server:  # noqa: S104
        yield server.getsockname()[1]


def test_the_login_node_reaches_the_broker_and_the_data_and_nothing_else(
    site: Enclosed, broker: Rabbit, data: FaultProxy, other: int
):
    assert reaches(site.login, broker.address, broker.port)
    assert reaches(site.login, data.host, data.port)
    # Not even their neighbours on the same host, nor each under the address of the other.
    assert not reaches(site.login, site.broker_address, other)
    assert not reaches(site.login, site.broker_address, data.port)
    assert not reaches(site.login, site.data_address, broker.port)
    routes = site.login.run("ip", "route").splitlines()
    assert len(routes) == 2
    assert not any(route.startswith("default") for route in routes)
    with pytest.raises(NotUp, match="unreachable"):
        site.login.run("ip", "route", "get", "192.0.2.1")


def test_nobody_reaches_the_login_node(site: Enclosed):
    # Slurm's controller listens at all addresses.
    port = site.slurm._ports["controller"]
    assert reaches(site.login, site.login_address, port)
    assert reaches(site.compute, _login(site), port)
    with socket.socket() as one:
        one.settimeout(2)
        with pytest.raises(TimeoutError):
            one.connect((site.login_address, port))


def test_compute_nodes_reach_neither_broker_nor_data(
    site: Enclosed, broker: Rabbit, data: FaultProxy, tmp_path: Path
):
    assert not reaches(site.compute, broker.address, broker.port)
    assert not reaches(site.compute, data.host, data.port)
    assert len(site.compute.run("ip", "route").splitlines()) == 1
    # Even a node that is told of a way is led nowhere.
    site.compute.run("ip", "route", "add", "default", "dev", "outer", "via", _login(site))
    try:
        assert not reaches(site.compute, broker.address, broker.port)
    finally:
        site.compute.run("ip", "route", "delete", "default")


def test_jobs_of_slurm_are_behind_the_wall(site: Enclosed, broker: Rabbit, tmp_path: Path):
    tmp_path.chmod(0o755)
    out = tmp_path / "out"
    job = f"ip -brief -4 address; exec 3<>/dev/tcp/{broker.address}/{broker.port} && echo reached"
    with pytest.raises(NotUp):
        site.slurm.run("sbatch", "--wait", f"--output={out}", "--wrap", f"bash -c '{job}'")
    told = out.read_text()
    assert "outer" in told
    assert "unreachable" in told
    assert "reached" not in told.replace("unreachable", "")


def _login(site: Enclosed) -> str:
    """Return the login node as compute nodes see it."""
    return site.login.run("ip", "-brief", "-4", "address", "show", "inner").split()[2].split("/")[0]
