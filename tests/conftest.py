"""What every test shares: one event loop, Hypothesis's profiles, and the needs of `system`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from hypothesis import settings

from tests import system

#: Fixtures for real systems; each starts only when a test asks for it.
pytest_plugins = ["tests.beds"]

# Whoever started us in the background may have SIGINT ignored; the commands under test obey it.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "default")


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
