"""A pilot, its starter and payloads in one kind of sandbox."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from pilotage.run import Ending, Launch, Starter
from pilotage.run.model import Sandbox
from tests.rigs.node import hostile, sandbox_users
from tests.rigs.node.sandbox_users import PATIENCE

#: What each kind needs of the machine.
PROGRAMS = {
    "bubblewrap": ("bwrap", "prlimit"),
    "podman": ("podman", "catatonit", "newuidmap"),
    "user": ("sudo", "visudo"),
}
SOURCE = Path(hostile.__file__).read_text()


class SandboxRig:
    """A pilot, its starter, and payloads in one kind of sandbox."""

    def __init__(
        self, ward: sandbox_users.SandboxUsers, kind: str, pilot: int, starter: Starter
    ) -> None:
        self.ward = ward
        self.kind = kind
        self.pilot = pilot
        self.starter = starter
        self.endings: dict[str, Ending] = {}
        self._number = 0

    def launch(self, *argv: str, owner: str = "one", **more: Any) -> Launch:
        self._number += 1
        key = f"{self._number}.1"
        place = str(self.ward.work / "jobs" / key)
        user = {"one": self.ward.one, "two": self.ward.two}[owner] if self.kind == "user" else ""
        box = Sandbox(**({"kind": self.kind, "user": user} | more.pop("box", {})))
        fields: dict[str, Any] = {
            "env": {},
            "cwd": place,
            "dir": place,
            "sandbox": box,
            "grace": 0.5,
        }
        return Launch(**({"key": key, "argv": argv} | fields | more))

    async def attempt(self, threat: str, facts: dict[str, Any], **more: Any) -> Launch:
        argv = [sandbox_users.PYTHON, "hostile.py", threat, json.dumps(facts)]
        one = self.launch(*argv, files={"hostile.py": SOURCE}, **more)
        await self.starter.start([one])
        return one

    async def end_of(self, *launches: Launch) -> Ending:
        with anyio.fail_after(PATIENCE):
            while any(one.key not in self.endings for one in launches):
                for report in await anext(self.starter):
                    if isinstance(report, Ending):
                        self.endings[report.key] = report
        return self.endings[launches[0].key]

    async def said(self, one: Launch, word: str = "") -> list[dict[str, Any]]:
        """Wait until a payload has said a word, or has ended; return all it said."""
        if word:
            await self.until(lambda: word in self.output(one))
        else:
            await self.end_of(one)
            assert '"begun"' in self.output(one), self.output(one, "stderr")
        return [json.loads(line) for line in self.output(one).splitlines()]

    async def run(self, *argv: str, **more: Any) -> tuple[Launch, Ending]:
        one = self.launch(*argv, **more)
        await self.starter.start([one])
        return one, await self.end_of(one)

    async def python(self, code: str, **more: Any) -> tuple[Launch, Ending]:
        argv = [sandbox_users.PYTHON, "-c", f"import json, os, signal, sys, time\n{code}"]
        return await self.run(*argv, **more)

    def output(self, one: Launch, stream: str = "stdout") -> str:
        path = Path(one.dir, stream)
        return path.read_text() if path.exists() else ""

    async def until(self, condition: Callable[[], object]) -> None:
        with anyio.fail_after(PATIENCE):
            while not condition():  # noqa: ASYNC110 - no event comes from another process
                await anyio.sleep(0.02)

    def facts(self, **more: Any) -> dict[str, Any]:
        return {
            "pilot": self.pilot,
            "token_file": str(self.ward.token_file),
            "digest": hashlib.sha256(self.ward.token.encode()).hexdigest(),
            **more,
        }


@asynccontextmanager
async def opened(ward: sandbox_users.SandboxUsers, kind: str) -> AsyncIterator[SandboxRig]:
    """Begin with an empty folder, a pilot and a starter."""
    shutil.rmtree(ward.work / "jobs", ignore_errors=True)
    with ward.pilot() as pilot:
        async with Starter.open(ward.work) as starter:
            yield SandboxRig(ward, kind, pilot, starter)
