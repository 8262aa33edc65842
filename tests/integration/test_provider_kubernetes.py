"""A pool whose pilots are Kubernetes jobs: by real `kubectl`, in a box that speaks its API."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.kube import Box
from testbed.ports import free_port
from tests.rigs.cluster.batch_site import SITE, SiteProject

pytestmark = [pytest.mark.needs("kubectl"), pytest.mark.slow]
ROOT = Path(__file__).parents[2]
PLUGIN = "examples.providers.kubernetes.pilotage_kubernetes:Kubernetes"
SETTINGS = """
[hub]
tls = "on"
port = {port}
[pilots]
sandbox = "none"
"""
POOL = """
site = "{site}"
maximum = 2
interval = "1s"

[control]
patience = "1s"
haste = "1s"
rest = "2s"
ski = 0.0
"""


def test_a_pool_grows_in_a_cluster_works_and_shrinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # As if the example were installed.
    monkeypatch.syspath_prepend(str(ROOT))
    with Box(tmp_path, cores=2) as box:
        env = "".join(f'{key} = "{value}"\n' for key, value in box.env.items())
        plugin = f'[plugin]\nimage = "python:3.11"\nmount = "{tmp_path}"\n'
        site = f'batch = "{PLUGIN}"\n[env]\n{env}{plugin}'
        farm = SiteProject(tmp_path / "p", site, env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"})
        (farm.root / "pilotage.toml").write_text(SETTINGS.format(port=free_port()))
        (farm.root / "pools").mkdir()
        (farm.root / "pools/burst.toml").write_text(POOL.format(site=SITE))
        jobs = farm.submit(12, more="sleep 0.5", site="", requirements='pool == "burst"')
        with farm.up():
            farm.wait(lambda: sum(farm.ran().values()) == 12)
            farm.wait(lambda: all(_over(one) for one in box.cluster.list("jobs", {})))
            farm.wait(lambda: all(str(farm.job(one).state) == "done" for one in jobs))
    farm.exactly_once(jobs)
    made = box.cluster.list("jobs", {"app.kubernetes.io/managed-by": "pilotage"})
    assert 1 <= len(made) <= 4


def _over(job: dict[str, dict[str, object]]) -> bool:
    return bool(job["status"].get("conditions"))
