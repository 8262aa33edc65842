"""The description of the API is true: what it allows is answered as it says, and the rest not."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import schemathesis
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, settings
from schemathesis import GenerationMode
from schemathesis.checks import negative_data_rejection, positive_data_acceptance

from pilotage.hub.api import openapi, routes
from pilotage.hub.api.overview import Overviews
from tests.rigs.project.hub_port import Hub, running

TABLE = routes.table(Overviews())
DOCUMENT = openapi.document(TABLE)
#: The stream never ends; its own tests read it.
CALLED = {
    **DOCUMENT,
    "paths": {path: facts for path, facts in DOCUMENT["paths"].items() if "stream" not in path},
}
MODES = schemathesis.config.GenerationConfig(
    modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
)
CONFIG = schemathesis.Config(
    projects=schemathesis.config.ProjectsConfig(
        default=schemathesis.config.ProjectConfig(generation=MODES)
    )
)
SCHEMA = schemathesis.openapi.from_dict(CALLED, config=CONFIG)
PILOT = '{"host": "n1", "work": "/w", "cpus": 4, "memory": 100}'


@asynccontextmanager
async def furnished(root: Path) -> AsyncIterator[Hub]:
    """A hub with a few things to ask for."""
    (root / "rules").mkdir()
    (root / "rules" / "a.toml").write_text(
        '[rule.copy]\nfiles = "in/*.txt"\nrun = ["cp", "{path}", "out"]\n'
    )
    (root / "sites").mkdir()
    (root / "sites" / "here.toml").write_text('batch = "local"\n')
    async with running(root) as hub:
        hub.project.apply_books()
        for n in range(5):
            hub.submit(f"job{n}")
            hub.flow(f"flow{n}")
        hub.run(1)
        hub.writer.do(
            lambda db: db.value(
                "pilot_add", name="n1", site="s", pool="", state="available", digest="",
                facts=PILOT, now=1.0,
            )
        )  # fmt: skip
        yield hub


@pytest.fixture(scope="module")
def hub(tmp_path_factory) -> Iterator[Hub]:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(furnished(tmp_path_factory.mktemp("project"))) as found,
    ):
        yield found


@SCHEMA.parametrize()
@settings(
    max_examples=15, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
def test_every_answer_is_as_described(case: Any, hub: Hub) -> None:
    if case.meta.generation.mode is GenerationMode.POSITIVE:
        _aim(case)
    _hurry(case)
    # These know more than a schema can say: expressions, workflows, who needs an owner, and that
    # numbers of pilots have no fraction, not even one of zero.
    own = {
        "/api/v1/jobs", "/api/v1/flows", "/api/v1/tokens",
    }  # fmt: skip
    excluded = [positive_data_acceptance] if case.path in own else []
    if any(value in ([], {}, None) for value in (case.query or {}).values()):
        # On its way it becomes nothing at all, which is right.
        excluded.append(negative_data_rejection)
    case.call_and_validate(
        base_url=hub.url,
        headers={"Authorization": f"Bearer {hub.admin}"},
        timeout=60,
        excluded_checks=excluded,
    )


def _aim(case: Any) -> None:
    """Ask for something that is there, as most numbers and names that come to mind are not."""
    named = case.path_parameters or {}
    if "id" in named and "tokens" not in case.path:
        named["id"] = int(named["id"]) % 6 + 1
    if "name" in named:
        known = {"sites": "here", "flows": "first"}
        named["name"] = next((known[one] for one in known if f"/{one}/" in case.path), "copy")


def _hurry(case: Any) -> None:
    """Wait for next to nothing, where a case would wait for long and rightly so."""
    wait: Any = (case.query or {}).get("wait")
    with contextlib.suppress(TypeError, ValueError):
        if 0.05 < float(wait) <= 60:
            case.query["wait"] = 0.05


def test_what_is_served_is_what_was_tested(hub: Hub) -> None:
    served = httpx2.get(f"{hub.url}/openapi.json").json()
    assert served == msgspec.json.decode(msgspec.json.encode(DOCUMENT))
    assert served["openapi"].startswith("3.1")


def test_every_operation_has_a_name_of_its_own_and_says_who_may():
    found = [one for path in DOCUMENT["paths"].values() for one in path.values()]
    assert len({one["operationId"] for one in found}) == len(found) == len(TABLE)
    assert all(one["summary"].endswith(".") for one in found)
    assert all("Needs a token for" in one["description"] for one in found)
