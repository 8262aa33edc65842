from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from testbed.errors import NotUp
from testbed.network import Namespace, Sites


@pytest.fixture(scope="module")
def hub() -> Iterator[int]:
    with socket.create_server(("0.0.0.0", 0)) as server:  # noqa: S104
        yield server.getsockname()[1]


def test_login_nodes_reach_the_hub(sites: Sites, hub: int):
    assert reaches(sites.one.login, sites.one.hub_address, hub)
    assert reaches(sites.two.login, sites.two.hub_address, hub)


def test_compute_nodes_of_one_reach_the_hub(sites: Sites, hub: int):
    assert reaches(sites.one.compute, sites.one.hub_address, hub)


def test_compute_nodes_of_two_reach_their_login_node_alone(sites: Sites, hub: int):
    server = sites.two.server
    assert server is not None
    assert not reaches(sites.two.compute, sites.two.hub_address, hub)
    assert not reaches(sites.two.compute, server.host, server.port)


@pytest.mark.parametrize("name", ["one", "two"])
def test_jobs_run_on_compute_nodes(sites: Sites, name: str):
    submit = "sbatch --wait --output=job.out --wrap 'ip -brief -4 address show outer'"
    told = sites.ssh(name, f"{submit} >/dev/null && cat job.out")
    assert getattr(sites, name).compute_address in told


def reaches(node: Namespace, host: str, port: int) -> bool:
    """Say whether a connection can be made."""
    try:
        node.run("timeout", "3", "bash", "-c", f"exec 3<>/dev/tcp/{host}/{port}")
    except NotUp:
        return False
    return True
