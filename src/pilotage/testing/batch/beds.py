"""A test bed that runs commands on this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pilotage.batch.system.model import BatchCommand, BatchOrder, BatchSystem, Output


class Commands:
    """Runs what an adapter says, in the environment of a system."""

    def __init__(
        self,
        batch: BatchSystem,
        folder: Path,
        env: Mapping[str, str],
        *,
        can: frozenset[str],
        patience: float = 60,
        waits: tuple[str, ...] = (),
        holds: tuple[str, ...] = (),
        stranger: BatchCommand | None = None,
    ) -> None:
        self.batch = batch
        self.folder = folder
        self.env = dict(env)
        self.can = can
        self.patience = patience
        self._waits = waits
        self._holds = holds
        self._stranger = stranger

    def run(self, call: BatchCommand) -> Output:
        if call.detach:
            with (self.folder / "out.step").open("ab") as out:
                subprocess.run(
                    ["setsid", "--fork", *call.argv], env=self.env, cwd=self.folder, stdout=out,
                    stderr=out, stdin=subprocess.DEVNULL, check=True,
                )  # fmt: skip
            return Output(0, "")
        done = subprocess.run(
            call.argv, env=self.env, cwd=self.folder, input=call.input.encode(),
            capture_output=True, check=False, timeout=60,
        )  # fmt: skip
        out_text, err_text = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        return Output(done.returncode, out_text, err_text)

    def waiting(self, order: BatchOrder) -> BatchOrder:
        return msgspec.structs.replace(order, extra=(*order.extra, *self._waits))

    def held(self, order: BatchOrder) -> BatchOrder:
        return msgspec.structs.replace(order, extra=(*order.extra, *self._holds))

    def stranger(self) -> None:
        assert self._stranger is not None
        said = self.run(self._stranger)
        assert said.exit == 0, said


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return our environment with what a system needs."""
    return {**os.environ, **env}
