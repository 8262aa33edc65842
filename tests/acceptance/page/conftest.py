"""A hub with a job of each kind, and a browser to look at it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.rigs.project.browser import EVIL, Hub, Made, Window, window
from tests.suite import system

# Machines are noisy, and a test that waits for a condition loses nothing by it.
expect.set_options(timeout=60_000)

RULES = """
[rule.upper]
files = "in/*.txt"
script = '''
cat "$PILOTAGE_PATH"
'''
"""
SETTINGS = "[site]\ncpus = 8\n"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Chromium's own sandbox does not start as root; all that it opens here is our own.
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        found = playwright.chromium.launch(executable_path=system.find("chromium"), args=flags)
        yield found
        found.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("page") / "project"
    with Hub(folder, RULES, SETTINGS) as hub:
        yield furnish(hub)


def furnish(hub: Hub) -> Made:
    """Give a hub jobs to show, and wait until they are as they are meant to be."""
    done = hub.shell("echo all is well", name="fine", tag="nightly")
    failed = hub.shell("echo said before; echo no such mineral >&2; exit 3", name="broken")
    ticks = "i=0; while [ $i -lt 6000 ]; do i=$((i+1)); echo tick $i; sleep 0.1; done"
    running = hub.shell(ticks, name="clock")
    unfit = hub.submit("true", name="giant", resources={"cpus": 4096})[0]
    held = hub.submit("true", name="parked", resources={"cpus": 4096})[0]
    hub.ask(f"jobs/{held}/hold", method="POST")
    evil = hub.shell(
        "printf '<script>alert(2)</script>\\033[31mred\\033[0m\\n'", name=EVIL, tag="<i>tag</i>"
    )
    (hub.folder / "in").mkdir()
    (hub.folder / "in/first.txt").write_text("hello\n")
    hub.becomes(done, "done")
    hub.becomes(failed, "failed")
    hub.becomes(running, "running")
    hub.becomes(evil, "done")
    return Made(hub, done, failed, running, unfit, held, evil)


@pytest.fixture
def tab(chromium: Browser, made: Made) -> Iterator[Window]:
    with window(chromium, made.hub) as found:
        yield found
