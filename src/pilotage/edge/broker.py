"""The connection of a project to its broker, by the settings `[bus]`."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pilotage.base import errors
from pilotage.bus.amqp.model import Broker, BrokerSettings
from pilotage.project.settings import BusSettings

if TYPE_CHECKING:
    from pilotage.bus.amqp.bus import AmqpBus


def connect(
    bus: BusSettings, root: Path, *passing: str, queues: Mapping[str, str] = {},
    fading: tuple[str, ...] = (),
) -> AmqpBus:  # fmt: skip
    """Return a bus, which is connected inside `async with`.

    Queues of the patterns in `passing` are for this process alone and are deleted soon after it
    ends; `queues` names others by their pattern, and those in `fading` are kept for days.
    """
    if not bus.url:
        message = "this project has no broker: `bus.url` in pilotage.toml is not set"
        hint = (
            "jobs at a site whose agent dials this hub are those of `pilotage submit` and "
            "`pilotage cancel`; the page on the edge service shows how to name a broker"
        )
        raise errors.ConfigError(message, hint=hint)
    try:
        from pilotage.bus.amqp.bus import AmqpBus
    except ImportError as error:
        message = f"the broker cannot be used: {error}"
        raise errors.ConfigError(message, hint="pip install 'pilotage[amqp]'") from error
    same = {name: getattr(bus, name) for name in BrokerSettings.__struct_fields__}
    files = {name: _path(root, same[name]) for name in ("ca", "certificate", "key")}
    mine = secrets.token_hex(6)
    own = {one: f"{bus.exchange}:{one.replace('*', '@')}:{mine}" for one in passing}
    broker = Broker(**(same | files), passing=passing, queues={**queues, **own}, fading=fading)
    return AmqpBus(broker)


def _path(root: Path, name: str) -> str:
    return str(root / name) if name else ""
