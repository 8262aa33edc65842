"""The bus of a project: how the broker is spoken with, under the settings `[bus]`."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pilotage.base import errors
from pilotage.project.settings import BusSettings

if TYPE_CHECKING:
    from pilotage.bus.amqp.bus import AmqpBus


def connect(
    bus: BusSettings, root: Path, *passing: str, queues: Mapping[str, str] = {},
    fading: tuple[str, ...] = (),
) -> AmqpBus:  # fmt: skip
    """Make a bus; it is connected inside `async with`.

    What comes by the patterns in `passing` is for this process alone, and waits for nobody long
    after it; `queues` names others by their pattern, and those in `fading` wait for days.
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
        from pilotage.bus.amqp.model import Broker
    except ImportError as error:
        message = f"the broker cannot be spoken with: {error}"
        raise errors.ConfigError(message, hint="pip install 'pilotage[amqp]'") from error
    mine = secrets.token_hex(6)
    own = {one: f"{bus.exchange}:{one.replace('*', '@')}:{mine}" for one in passing}
    return AmqpBus(
        Broker(
            url=bus.url, ca=_path(root, bus.ca), certificate=_path(root, bus.certificate),
            key=_path(root, bus.key), user=bus.user, exchange=bus.exchange, dead=bus.dead,
            heartbeat=bus.heartbeat, patience=bus.patience, passing=passing,
            queues={**queues, **own}, fading=fading,
        )
    )  # fmt: skip


def _path(root: Path, name: str) -> str:
    return str(root / name) if name else ""
