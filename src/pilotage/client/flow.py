"""Start, await and read workflows at a hub."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pilotage.base import errors
from pilotage.client import rest
from pilotage.client.where import Address

_POLL_S = 0.2
_FINAL = ("done", "failed", "cancelled")
#: Workflows in files may be in each other so deep.
_DEEPEST = 20


class Written(Protocol):
    """A workflow that is written in Python: a `pilotage.Flow`."""

    def to_dict(self) -> dict[str, Any]:
        """Write it as a file of JSON has it."""
        ...


#: A file of TOML or JSON, what such a file has, or a workflow that is written in Python.
What = str | Path | Mapping[str, Any] | Written


def start(
    address: Address, what: What, params: Mapping[str, Any] | None, key: str, tag: str
) -> int:
    """Start a workflow at a hub and return its number."""
    # A connection may break before the answer: then the same is asked for once more.
    key = key or secrets.token_hex(12)
    body = {"flow": definition(what), "params": dict(params or {}), "key": key, "tag": tag}
    return int(rest.post(address, "/flows", body)["id"])


def definition(what: What) -> dict[str, Any]:
    """Return the definition of a workflow with all that lies in files beside it."""
    if isinstance(what, Mapping):
        return dict(what)
    if isinstance(what, (str, Path)):
        return _file(Path(what), 0)
    return what.to_dict()


def _file(file: Path, depth: int) -> dict[str, Any]:
    if depth > _DEEPEST:
        raise errors.BadFlow("these files name each other in a circle", file=str(file))
    source = _read(file)
    try:
        data = json.loads(source) if file.suffix == ".json" else tomllib.loads(source)
    except ValueError as error:
        kind = "JSON" if file.suffix == ".json" else "TOML"
        raise errors.BadFlow(f"not {kind}: {error}", file=str(file)) from None
    if not isinstance(data, dict) or not isinstance(data.get("step", {}), dict):
        raise errors.BadFlow("a workflow is a table", file=str(file))
    for step in data.get("step", {}).values():
        if isinstance(step, dict):
            step.update(_carried(step, file.parent, depth))
    return data


def _carried(step: dict[str, Any], folder: Path, depth: int) -> dict[str, Any]:
    """Return the keys of a step that name files with what is in those."""
    found: dict[str, Any] = {}
    script, python, flow = (step.get(name) for name in ("script", "python", "flow"))
    if isinstance(script, str) and "\n" not in script:
        found["script"] = f"{_read(folder / script)}\n"
    if isinstance(python, str) and "\n" not in python:
        name, colon, function = python.rpartition(":")
        found["python"] = f"{_read(folder / (name if colon else python))}\n"
        if colon:
            found["function"] = function
    if isinstance(flow, str):
        found["flow"] = _file(folder / flow, depth + 1)
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise errors.NotFound(f"cannot read `{file}`: {error.strerror}") from None


def _results(sheet: Mapping[str, Any]) -> dict[str, Any]:
    if sheet["state"] == "done":
        return dict(sheet["result"])
    message = f"flow {sheet['id']} is {sheet['state']}: {sheet['reason']}"
    hint = f"`pilotage flow explain {sheet['id']}` says more"
    raise errors.JobFailed(message, hint=hint, state=sheet["state"])


@dataclass(eq=False, repr=False)
class FlowRun:
    """A workflow at a hub; each question is answered by how it is now."""

    _address: Address
    #: Its number at the hub.
    number: int

    @property
    def state(self) -> str:
        """Where it is: `running`, `staging_out`, `cancelling`, `done`, `failed`, `cancelled`."""
        return str(self._sheet()["state"])

    @property
    def results(self) -> dict[str, Any]:
        """The results of its outputs by their names, once it is done; if it is not, `JobFailed`."""
        self.wait()
        return _results(self._sheet())

    @property
    def files(self) -> list[str]:
        """The files that came out, once it is done: paths at the hub, or URLs."""
        return list(self._sheet()["files"])

    def wait(self, timeout: float | None = None) -> str:
        """Wait until it is over, well or not, and return the state."""
        end = None if timeout is None else time.monotonic() + timeout
        while (state := self.state) not in _FINAL:
            if end is not None and time.monotonic() > end:
                raise errors.TimedOut(f"flow {self.number} is not over within {timeout:g} s")
            time.sleep(_POLL_S)
        return state

    def cancel(self) -> None:
        """Cancel it; `wait` returns when it has ended everywhere."""
        rest.post(self._address, f"/flows/{self.number}/cancel", None)

    def retry(self, *steps: str) -> list[str]:
        """Run what failed again, or these steps, with all that follows; return their names."""
        body = {"steps": list(steps)}
        return list(rest.post(self._address, f"/flows/{self.number}/retry", body)["steps"])

    def _sheet(self) -> dict[str, Any]:
        return rest.flow(self._address, self.number)


class AsyncFlowRun:
    """The same in a program with an event loop: all is to be awaited."""

    def __init__(self, address: Address, number: int) -> None:
        self._run = FlowRun(address, number)
        #: Its number at the hub.
        self.number = number

    async def state(self) -> str:
        """Return where it is."""
        return await asyncio.to_thread(lambda: self._run.state)

    async def results(self) -> dict[str, Any]:
        """Wait until it is over, and return the results of its outputs by their names."""
        await self.wait()
        return await asyncio.to_thread(lambda: self._run.results)

    async def files(self) -> list[str]:
        """Return the files that came out, once it is done."""
        return await asyncio.to_thread(lambda: self._run.files)

    async def wait(self) -> str:
        """Wait until it is over, well or not, and return the state."""
        while (state := await self.state()) not in _FINAL:  # noqa: ASYNC110 - far away
            await asyncio.sleep(_POLL_S)
        return state

    async def cancel(self) -> None:
        """Cancel it."""
        await asyncio.to_thread(self._run.cancel)

    async def retry(self, *steps: str) -> list[str]:
        """Run what failed again, or these steps, with all that follows."""
        return await asyncio.to_thread(self._run.retry, *steps)
