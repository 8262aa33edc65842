"""The worked example of a provider: real `kubectl`, and a box that speaks Kubernetes' API.

The box runs what jobs say as processes here; it is no cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from examples.providers.kubernetes.pilotage_kubernetes import Kubernetes
from pilotage.batch.system.model import BatchCommand, BatchOrder, Phase
from pilotage.testing.batch import beds
from pilotage.testing.batch.life import Bed, Life, find, make, submit, wait
from testbed.kube import Box

pytestmark = [pytest.mark.needs("kubectl"), pytest.mark.slow]
CORES = 4
STRANGER = (
    '{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"stranger","labels":'
    '{"app.kubernetes.io/managed-by":"pilotage"}},"spec":{"template":{"metadata":{"labels":{}},'
    '"spec":{"containers":[{"name":"x","image":"x","command":["true"]}]}}}}'
)


class Kube(beds.Commands):
    """Jobs that are too large wait; those whose image is nowhere are held."""

    def waiting(self, order: BatchOrder) -> BatchOrder:
        return msgspec.structs.replace(order, cpus=CORES + 1)

    def held(self, order: BatchOrder) -> BatchOrder:
        self.batch = Kubernetes({"image": "missing/image", "mount": str(self.folder)})
        return order


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with Box(tmp_path_factory.mktemp("kube"), CORES) as found:
        yield found


@pytest.fixture
def kube(box: Box, tmp_path: Path) -> Kube:
    create = ("kubectl", "create", "--filename=-", "--validate=false")
    return Kube(
        Kubernetes({"image": "python:3.11", "mount": str(tmp_path)}), tmp_path,
        beds.environment(box.env), patience=60, stranger=BatchCommand(create, input=STRANGER),
        can=frozenset({"memory", "time", "signal", "hold", "wait", "ended", "cause"}),
    )  # fmt: skip


class TestLife(Life):
    @pytest.fixture
    def bed(self, kube: Kube) -> Bed:
        return kube


def test_an_order_that_is_given_twice_is_one_job(kube: Kube):
    order = make(kube, "echo once >> ran")
    assert submit(kube, order) == submit(kube, order) == order.key
    wait(kube, order, Phase.OVER)
    assert len(find(kube, order.key)) == 1
    assert (Path(order.folder) / "ran").read_text() == "once\n"


def test_jobs_that_are_gone_keep_no_other_alive(kube: Kube):
    order = make(kube, "sleep 300")
    submit(kube, order)
    wait(kube, order, Phase.RUNNING)
    said = kube.run(kube.batch.cancel(["k00000000000000", order.key]))
    assert said.exit == 0, said
    wait(kube, order, Phase.OVER)


def test_a_cluster_that_does_not_answer_has_no_listing(kube: Kube):
    said = kube.run(BatchCommand(("kubectl", "--server=http://127.0.0.1:9", "get", "jobs")))
    assert said.exit != 0
    with pytest.raises(Exception, match="kubectl get"):
        kube.batch.listed(said)
