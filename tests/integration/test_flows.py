"""Workflows at real agents by a real broker, as jobs of the hub, and as flows within flows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.rabbit import Rabbit
from tests.edge import rig
from tests.edge.rig import Edge
from tests.flowed import Flow, Hub, Step


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, rabbit: Rabbit) -> Iterator[Edge]:
    """Have two sites at one exchange."""
    with rig.at_local(tmp_path_factory.mktemp("flows") / "a", rabbit) as one, one.up():
        yield one


@pytest.fixture(scope="module")
def second(first: Edge, tmp_path_factory: pytest.TempPathFactory, rabbit: Rabbit) -> Iterator[Edge]:
    folder = tmp_path_factory.mktemp("flows") / "b"
    with rig.at_local(folder, rabbit, beside=first) as one, one.up():
        yield one


@pytest.fixture(scope="module")
def hub(first: Edge, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    made = Hub(tmp_path_factory.mktemp("flows") / "hub", first)
    with made.up():
        yield made


def here(*argv: str, **more: object) -> Step:
    return Step(recipe={"kind": "command", "argv": list(argv)}, **more)  # type: ignore[arg-type]


def at(edge: Edge, application: str = "count", **more: object) -> Step:
    return Step(sites=(edge.site,), application=application, **more)  # type: ignore[arg-type]


def test_a_chain_over_two_sites_and_this_hub(hub: Hub, first: Edge, second: Edge):
    flow = Flow(
        name="chain",
        steps={
            "a": at(first),
            "b": at(second, needs=("a",)),
            "c": here("true", needs=("b",)),
            "d": at(first, needs=("c",)),
        },
    )
    number = hub.submit(flow)
    assert hub.wait_over(number) == ["done"], hub.told()
    assert set(hub.steps(number).values()) == {"done"}
    assert [one.site for one in hub.attempts(number)] == [first.site, second.site, "", first.site]
