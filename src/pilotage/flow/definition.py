"""Definitions as the store has them: each step on its own, so that an end reads one, not all."""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from pilotage.base import errors, text
from pilotage.flow.model import Flow, Step

if TYPE_CHECKING:
    from pilotage.store import Db


class Head(msgspec.Struct, frozen=True):
    """What a flow is and where, without its steps."""

    id: int
    flow: Flow
    state: str
    name: str
    owner: str
    tag: str
    parent: int | None


@functools.lru_cache(maxsize=1024)
def read_head(body: str) -> Flow:
    """Read the definition of a flow without its steps, which many of its tasks ask for."""
    return msgspec.convert(text.load(body), Flow)


@functools.lru_cache(maxsize=4096)
def read_step(body: str) -> Step:
    """Read the definition of a step; all its tasks share one."""
    return msgspec.convert(text.load(body), Step)


def digest(body: str) -> str:
    """Return what tells one definition from another."""
    return hashlib.sha256(body.encode()).hexdigest()


def split(flow: Flow) -> tuple[str, list[list[Any]]]:
    """Return the head of a flow as JSON, and `[name, unmet, body, list]` of each step."""
    rows: list[list[Any]] = []
    for name, step in flow.steps.items():
        goes = "" if step.each is None else text.dump(step.each)
        body = text.dump(msgspec.structs.replace(step, each=None))
        rows.append([name, len(step.needs), body, goes])
    return text.dump(msgspec.structs.replace(flow, steps={})), rows


def head(db: Db, flow: int) -> Head:
    """Read a flow without its steps."""
    row = db.row("flow_head", flow=flow)
    if row is None:
        message = f"there is no flow {flow}"
        raise errors.NotFound(message, hint="`pilotage flow ls` lists the flows")
    return Head(flow, read_head(row[0]), *row[1:])


def step(db: Db, flow: int, name: str) -> Step:
    """Read a step, without the list that it goes through."""
    body = db.value("flow_step_body", flow=flow, step=name)
    if body is None:
        message = f"flow {flow} has no step `{name}`"
        raise errors.NotFound(message, hint=f"`pilotage flow show {flow}` lists its steps")
    return read_step(body)
