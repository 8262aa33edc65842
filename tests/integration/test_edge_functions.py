"""Programs and functions, from Python, at sites whose administrators let them in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import pilotage
from pilotage.base import errors
from pilotage.client import Client
from testbed.rabbit import Rabbit
from tests.rigs.broker import toml
from tests.rigs.broker.dialing_agent import pair
from tests.rigs.broker.edge_agent import Edge
from tests.rigs.cluster.web import Web, serving
from tests.rigs.project import file_calls
from tests.rigs.project.flow_hub import Hub, served
from tests.suite.programs import PATIENCE

pytestmark = pytest.mark.slow


def _equip(one: Edge, web: Web) -> None:
    host = f"127.0.0.1:{web.port}"
    staging = {"protocols": ["http"], "hosts": [host], "private": ["127.0.0.0/8"]}
    python = Path("/usr/bin/python3").resolve()
    file = one.programs.offer("functions", python, takes="functions", staging=staging)
    told = {"takes": "commands", "staging": staging}
    file.with_name("commands.toml").write_text(toml.write(told))


@contextmanager
def _transfers(root: Path) -> Iterator[Web]:
    """Have a transfer server while the block runs."""
    root.mkdir()
    with serving(root) as web:
        yield web


def _settings(web: Web) -> dict[str, Any]:
    return {"flows": {"data": f"{web.url}/data", "hosts": [f"127.0.0.1:{web.port}"]}}


@contextmanager
def _connected(hub: Hub, site: str) -> Iterator[Client]:
    before = Path.cwd()
    hub.wait((hub.root / ".pilotage/hub.json").exists)
    os.chdir(hub.root)
    try:
        with pilotage.connect() as client:
            yield client.options(site=site)
    finally:
        os.chdir(before)


def _functions(client: Client) -> None:
    """Require that functions run at the site and return."""

    def power(base, exponent=1):
        return base**exponent

    def fail(value):
        raise LookupError(f"no {value}")

    assert client.submit(power, 2, exponent=5).result(PATIENCE) == 32
    assert list(client.map(power, range(5), range(5), chunksize=5)) == [1, 1, 4, 27, 256]
    with pytest.raises(errors.RemoteError, match="no 3"):
        client.submit(fail, 3).result(PATIENCE)


def _programs(client: Client) -> None:
    """Require that programs run there."""
    future = client.submit(["sh", "-c", "echo one\necho $0", "{x} $HOME"])
    assert future.result(PATIENCE).state == "done"
    with pytest.raises(errors.JobFailed, match="code 3"):
        client.submit(["sh", "-c", "exit 3"]).result(PATIENCE)


def test_programs_functions_and_files_by_the_hubs_own_port(tmp_path):
    with (
        _transfers(tmp_path / "web") as web,
        pair(tmp_path, lambda one: _equip(one, web), settings=_settings(web)) as (hub, site),
        _connected(hub, site.site) as client,
    ):
        _functions(client)
        _programs(client)
        file_calls.make(hub.root)
        file_calls.works(client, hub.root)


def test_programs_functions_and_files_by_a_broker(tmp_path, rabbit: Rabbit):
    with (
        _transfers(tmp_path / "web") as web,
        served(tmp_path, rabbit, lambda one: _equip(one, web)) as edge,
    ):
        hub = Hub(tmp_path / "hub", edge, settings={"hub": {"port": 0}, **_settings(web)})
        with hub.up(), _connected(hub, edge.site) as client:
            _functions(client)
            _programs(client)
            file_calls.make(hub.root)
            file_calls.works(client, hub.root)
