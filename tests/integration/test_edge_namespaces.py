"""A site that nobody can log in to, as it is: the agent calls the broker and the data, and no more.

Broker and data are on this machine, the agent on a login node that reaches nothing else of it, and
Slurm's nodes behind that, with no way out.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.enclosed import Enclosed, reaches
from testbed.errors import NotUp
from testbed.fault_proxy import FaultProxy
from testbed.rabbit import Rabbit
from tests.rigs.broker import edge_agent, invariants
from tests.rigs.broker.applications import DOES
from tests.rigs.broker.edge_agent import Edge, Where
from tests.rigs.cluster.web import Web, serving
from tests.suite import system

pytestmark = pytest.mark.slow

#: What a job writes down of the network that it has.
TELLS = "ip -brief -4 address > out/network"


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


# -- the agent in there --------------------------------------------------------------------------


def offer(edge: Edge, data: FaultProxy) -> None:
    """Have the site offer what reads a file and writes another, and looks for a way out."""
    out = f"/dev/tcp/{edge.rabbit.address}/{edge.rabbit.port}"
    tries = f"if bash -c 'exec 3<>{out}' 2>/dev/null; then echo reached > out/way; fi"
    edge.programs.add(
        "stage", f"{DOES['stage']}\n{tries}\n{TELLS}", argv=["data", "out/data"],
        staging={
            "protocols": ["http"], "hosts": [f"{data.host}:{data.port}"],
            "private": [f"{data.host}/32"],
        },
    )  # fmt: skip


def test_two_factor_site_end_to_end(
    site: Enclosed, broker: Rabbit, data: FaultProxy, web: Web, tmp_path: Path
):
    """A job comes by the broker, its data by the server, and it runs where there is no network."""
    token = tmp_path / "token"
    token.write_text("a-token-that-nobody-may-see")
    web.token = token.read_text()
    where = Where(inside=site.login.prefix, proxied=False)
    keys = {"credentials": {data.host: {"token": str(token)}}}
    with edge_agent.at_slurm(
        tmp_path / "e", broker, site.slurm, where=where, settings=keys
    ) as edge:
        edge.secrets.append(web.token)
        offer(edge, data)
        jobs = []
        with edge.up():
            for number in range(3):
                (web.root / f"in-{number}").write_text(f"events {number}")
                jobs.append(
                    edge.post(
                        "stage",
                        inputs=[{"url": f"{_url(data)}/in-{number}", "path": "data"}],
                        outputs=[{"path": "out", "url": f"{_url(data)}/out-{number}/"}],
                    )
                )
            edge.wait_ended(*jobs)
            # Nothing was between them but what is named in the wall.
            assert not reaches(site.login, site.broker_address, data.port)
        invariants.holds(edge, jobs)
        for number in range(3):
            out = web.root / f"out-{number}"
            found = {path.name: path.read_text() for path in out.rglob("*") if path.is_file()}
            assert found["data"] == f"EVENTS {number}"
            assert "outer" in found["network"]
            assert "way" not in found
        beats = edge.heard("heartbeat")
        told = beats[-1]["scheduler"]
        assert (told["batch"], told["well"], told["text"]) == ("slurm", True, "")
        assert {queue["name"] for queue in told["queues"]} == {"debug", "long"}


def test_a_site_behind_a_wall_goes_on_after_the_wall_was_shut(
    site: Enclosed, broker: Rabbit, data: FaultProxy, web: Web, tmp_path: Path
):
    """Packets are dropped for a while, as when a firewall is reloaded; nothing is lost."""
    web.token = ""
    where = Where(inside=site.login.prefix, proxied=False)
    with edge_agent.at_slurm(tmp_path / "e", broker, site.slurm, where=where) as edge, edge.up():
        held = edge.post("gate")
        edge.wait_state(held, "running")
        site.login.run("iptables", "-I", "OUTPUT", "-o", "wall", "-j", "DROP")
        try:
            late = edge.post("count")
            edge.programs.gate.touch()
            edge.wait(edge.programs.ends)
            # So long that both sides gave the connection up.
            quiet = len(edge.heard())
            time.sleep(8)
            assert len(edge.heard()) == quiet
        finally:
            site.login.run("iptables", "-D", "OUTPUT", "-o", "wall", "-j", "DROP")
        edge.wait_ended(held, late)
        invariants.holds(edge, [held, late])


def _url(data: FaultProxy) -> str:
    return f"http://{data.host}:{data.port}"


def _login(site: Enclosed) -> str:
    """Return the login node as compute nodes see it."""
    return site.login.run("ip", "-brief", "-4", "address", "show", "inner").split()[2].split("/")[0]
