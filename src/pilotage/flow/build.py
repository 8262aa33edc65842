"""Workflows in Python: the same keys as in a file, with steps that can be handed to each other.

    from pilotage import Flow, Project

    flow = Flow("atlas", params={"events": 1000})
    generate = flow.step("generate", site="farm", application="generate", result="out.json")
    flow.step("simulate", site="big", application="simulate", each=generate.result("chunks"))
    with Project.find() as project:
        number = flow.submit(project)

Errors are reported when it is checked, by `definition` or `submit`.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from pilotage.base import errors
from pilotage.base.clock import Clock
from pilotage.base.owner import me
from pilotage.flow import model, moves
from pilotage.flow.read import from_dict
from pilotage.store import Db

_log = logging.getLogger("pilotage.flow")


class FlowTarget(Protocol):
    """What a flow can be submitted to: a `pilotage.Project`."""

    db: Db
    clock: Clock

    def poke(self) -> None:
        """Notify the running hub that there is something new."""
        ...

    def check_flow(self, flow: model.Flow, /) -> tuple[str, ...]:
        """Refuse a flow whose sites will never take its steps; return which steps will wait."""
        ...


class StepHandle(msgspec.Struct, frozen=True):
    """A step of a flow under construction; other steps may need it or read from it."""

    name: str

    def __getitem__(self, output: str) -> str:
        """Return the name of one of its outputs."""
        return f"{self.name}/{output}"

    def result(self, *fields: str | int) -> str:
        """Return the template of its result, or of a part of it."""
        return "{" + ".".join([self.name, "result", *map(str, fields)]) + "}"

    def state(self) -> str:
        """Return the template of its state."""
        return "{" + self.name + ".state}"


class Flow:
    """A workflow under construction."""

    def __init__(self, name: str, **keys: Any) -> None:  # noqa: ANN401 - what the schema takes
        """Name it; keys are those at the top of a file."""
        self._keys: dict[str, Any] = {"name": name, **keys}
        self._steps: dict[str, dict[str, Any]] = {}

    def step(self, name: str, **keys: Any) -> StepHandle:  # noqa: ANN401 - what the schema takes
        """Add a step; keys are those of `[step.NAME]`, and `python` may be a function."""
        if name in self._steps:
            raise errors.BadFlow(f"there is a step `{name}` already")
        self._steps[name] = {key: _written(value) for key, value in keys.items()}
        if callable(keys.get("python")):
            self._steps[name] |= _function(keys["python"])
        return StepHandle(name)

    def output(self, name: str, what: StepHandle | str) -> None:
        """Declare an output of the flow: a step or one of its outputs."""
        self._keys["outputs"] = {**self._keys.get("outputs", {}), name: _written(what)}

    def to_dict(self) -> dict[str, Any]:
        """Return it as a file of JSON has it."""
        return {**self._keys, "step": dict(self._steps)}

    def definition(
        self, params: Mapping[str, Any] | None = None, *, base: Path | None = None
    ) -> model.Flow:  # fmt: skip
        """Return the checked definition; values of parameters may be given."""
        return from_dict(self.to_dict(), base=base or Path.cwd(), params=params)

    def submit(
        self, project: FlowTarget, params: Mapping[str, Any] | None = None, *, key: str = "",
        tag: str = "", base: Path | None = None,
    ) -> int:  # fmt: skip
        """Start it and return its number; submitting the same key again returns the same flow."""
        new = model.NewFlow(
            flow=self.definition(params, base=base),
            key=key or f"python.{secrets.token_hex(12)}",
            owner=me(),
            tag=tag,
        )
        for note in project.check_flow(new.flow):
            _log.warning("%s", note)
        with project.db.transaction():
            number = moves.submit(project.db, new, project.clock.now())
        project.poke()
        return number


def _function(function: Callable[..., Any]) -> dict[str, str]:
    """Return the source of a function, so that it can be called elsewhere."""
    from pilotage.client.function import recipe  # few flows have functions

    found = recipe(function)
    source = found.source or Path(found.file).read_text(encoding="utf-8")
    return {"python": f"{source}\n", "function": found.function}


def _written(value: Any) -> Any:  # noqa: ANN401 - any value of a key
    """Return a value with steps replaced by their names and flows by their definitions."""
    if isinstance(value, StepHandle):
        return value.name
    if isinstance(value, Flow):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: _written(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_written(inner) for inner in value]
    return value
