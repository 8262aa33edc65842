"""Jobs with all that a job can have: inputs, programs before and after it, and outputs.

What each leaves at its URL tells whether all of it came, once and in order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.rigs.broker.edge_agent import USER, Edge

_DOES = 'mkdir -p out && cat data made > "out/data.new" && mv out/data.new out/data'
#: Each may run again if the agent was killed before it was written down that it ran.
_BEFORE = "echo before > made.new && mv made.new made"
_AFTER = 'n="$(wc -l < out/data)" && echo "$n lines" > out/count'
_LEFT = {"data": "hello\nbefore\n", "count": "2 lines\n"}


class WholeJobs:
    """Such jobs of one site, whose data is in a folder or at a server of it."""

    def __init__(
        self, edge: Edge, data: Path, *, url: str = "", staging: Mapping[str, Any] = {},
        before: str = "true", after: str = "true", beside: bool = True, name: str = "whole",
    ) -> None:  # fmt: skip
        """Offer the application under a name; `before` and `after` are what else those programs do.

        Without `beside` there are none, and the job does it all.
        """
        self._edge, self._name = edge, name
        self.data, self._url = data, url or f"file://{data}"
        data.mkdir(exist_ok=True)
        (data / "in").write_text("hello\n")
        staging = staging or {"protocols": ["file"], "roots": [str(data)]}
        if not beside:
            edge.programs.add(name, f"{_BEFORE}\n{_DOES}\n{_AFTER}", staging=staging)
            return
        scripts = {"preprocess": f"{before}\n{_BEFORE}", "postprocess": f"{after}\n{_AFTER}"}
        programs = {step: self._program(step, script) for step, script in scripts.items()}
        edge.programs.add(
            name, _DOES, **{step: [str(one)] for step, one in programs.items()},
            pins={str(one): _digest(one) for one in programs.values()}, staging=staging,
        )  # fmt: skip

    def _program(self, step: str, script: str) -> Path:
        path = self._edge.programs.folder / f"{self._name}-{step}"
        path.write_text(f"#!/bin/sh\nset -e\n{script}\n")
        path.chmod(0o755)
        return path

    def post(self, count: int = 1, *, user: str = USER, **fields: Any) -> list[str]:
        """Send jobs; return their keys."""
        made = [self._edge.job(self._name, **fields) for _ in range(count)]
        for one in made:
            one["inputs"] = [{"url": f"{self._url}/in", "path": "data"}]
            one["outputs"] = [{"path": "out/", "url": f"{self._url}/{one['key']}/"}]
        self._edge.send(*made, user=user)
        return [str(one["key"]) for one in made]

    def left(self, keys: Iterable[str]) -> None:
        """Require that all jobs left at their URLs what they should."""
        wrong = [key for key in keys if _files(self.data / key, tuple(_LEFT)) != _LEFT]
        assert wrong == [], self._edge.told()


def _files(folder: Path, names: Sequence[str]) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in names if (folder / name).is_file()}


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
