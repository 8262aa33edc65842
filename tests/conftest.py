"""What every test shares: which tests run and where, one event loop, Hypothesis's profiles."""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.suite import durations, leftovers, since, spread, suites, system

#: Fixtures for real systems; each starts only when a test asks for it.
pytest_plugins = ["pytester", "tests.suite.beds"]

# SIGINT may be ignored by the shell that started us in the background; commands under test obey it.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: `quick` tries few examples, `ci` as many as Hypothesis does by itself, both always the same ones.
settings.register_profile(
    "quick", deadline=None, derandomize=True, print_blob=True, max_examples=30
)
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("soak", deadline=None, max_examples=2000)

PROFILES = {None: "default", suites.QUICK: "quick", suites.REST: "ci", suites.SOAK: "soak"}

#: What is known of the tests that were left out.
LEFT_OUT = pytest.StashKey[dict[str, int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pilotage")
    group.addoption("--suite", choices=list(suites.COMMANDS), help="run this suite alone")
    group.addoption("--since", metavar="REVISION", help="run what a change since then touches")


def pytest_configure(config: pytest.Config) -> None:
    leftovers.begin()
    suites.seed()
    suite = config.getoption("suite")
    settings.load_profile(PROFILES[suite])
    config.stash[LEFT_OUT] = {}
    config.pluginmanager.register(durations.Meter(suite))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept, left = suites.select(items, config.getoption("suite"), suites.seed())
    items[:] = kept
    config.stash[LEFT_OUT] = dict(left)
    if revision := config.getoption("since"):
        files = since.touched(since.changed(revision))
        if files is not None:
            items[:] = [item for item in items if spread.file_of(item.nodeid) in files]
    if told := getattr(config, "workerinput", {}).get("told"):
        Path(told).write_text(json.dumps({"beds": spread.beds(items), "left": left}))


def pytest_configure_node(node: Any) -> None:
    """Have the first worker tell which files need a bed, and what is left out."""
    node.workerinput["told"] = str(_told()) if node.gateway.id == "gw0" else ""


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> spread.ByBed:
    def told() -> dict[str, str]:
        # A worker that could not collect has told nothing; its error is shown by itself.
        found = json.loads(_told().read_text() or '{"left": {}, "beds": {}}')
        config.stash[LEFT_OUT] = found["left"]
        return dict(found["beds"])

    return spread.ByBed(config, log, told)


@functools.cache
def _told() -> Path:
    """Return the file in which a worker tells of what it collected: here nothing is."""
    handle, path = tempfile.mkstemp(prefix="pilotage-tests-")
    os.close(handle)
    atexit.register(os.unlink, path)
    return Path(path)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["lacks"] = dict(system.met)


def pytest_testnodedown(node: Any) -> None:
    """Hear from a worker what it lacked."""
    system.met.update(getattr(node, "workeroutput", {}).get("lacks", {}))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def needs() -> Callable[..., None]:
    return system.needs


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        system.needs(*mark.args)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if lines := system.summary():
        terminalreporter.section("not tested on this machine")
        for line in lines:
            terminalreporter.line(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    suite = config.getoption("suite")
    if suite and not hasattr(config, "workerinput"):
        left: dict[str, int] = config.stash[LEFT_OUT]
        print(suites.farewell(suite, left))  # noqa: T201 - the last line of a run
