"""A real broker, a hub, and sites that answer at once."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.flows.scripted import READY
from pilotage.flow.model import Flow
from testbed.rabbit import Rabbit
from tests.rigs.broker.edge_agent import ADMIN, AGENT
from tests.rigs.project.flow_hub import FINAL, Hub, bus_settings

SITES = ("east", "west")
_PATIENCE_S = 900.0


class Answered(NamedTuple):
    """A job at a site: when it came, and when it was said to be done."""

    site: str
    key: str
    came: float
    said: float


class Bed:
    """A hub and its sites."""

    def __init__(self, scratch: Path, rabbit: Rabbit) -> None:
        """Take the broker; everything else is new."""
        scratch.mkdir(parents=True)
        self._scratch, self._rabbit = scratch, rabbit
        self._exchange = f"bench-{secrets.token_hex(4)}"
        settings = {"bus": bus_settings(rabbit, self._exchange)}
        self.hub = Hub(scratch / "hub", settings=settings)

    @contextlib.contextmanager
    def sites(self, name: str) -> Iterator[Path]:
        """Have sites answer while the block runs; they write to the file that is returned."""
        file = self._scratch / name
        process = subprocess.Popen(
            self._command("scripted", AGENT, file, *SITES), stdout=subprocess.PIPE, text=True
        )
        try:
            if process.stdout is None or process.stdout.readline().strip() != READY:
                raise RuntimeError("the sites of the benchmark did not start")
            yield file
        finally:
            process.kill()
            process.communicate()

    def relay(self, count: int) -> None:
        """Send jobs with the least that anybody could do."""
        words = self._command("relay", ADMIN, self._scratch / "relay.db", count, *SITES)
        subprocess.run(words, check=True)

    def run(self, flow: Flow) -> float:
        """Run a workflow; return how long it took from its submission, in seconds."""
        began = time.monotonic()
        number = self.hub.submit(flow)
        while (state := self.hub.flow(number).state) not in FINAL:
            if time.monotonic() > began + _PATIENCE_S:
                raise TimeoutError(self.hub.told())
            time.sleep(0.01)
        if state != "done":
            raise RuntimeError(self.hub.told())
        return time.monotonic() - began

    def _command(self, module: str, user: str, *words: object) -> list[str]:
        rabbit = self._rabbit
        papers = rabbit.papers[user]
        told = (rabbit.url, rabbit.authority.certificate, *papers, self._exchange, *words)
        return [sys.executable, "-m", f"bench.flows.{module}", *map(str, told)]


def answered(file: Path) -> list[Answered]:
    """Read what sites have written down."""
    rows = (line.split(" ") for line in file.read_text().splitlines())
    return [Answered(site, key, float(came), float(said)) for site, key, came, said in rows]
