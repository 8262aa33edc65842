"""`pilotage relay`: relay connections between pilots and the hub."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import Annotated

import anyio
from cyclopts import Parameter

from pilotage.base import errors, units
from pilotage.cli import formatting, printing
from pilotage.cli.answer import Answer
from pilotage.cli.common import HERE, Common
from pilotage.link import connect
from pilotage.link.relay import Relay, RelayBounds
from pilotage.node.dial import Route


def relay(
    *,
    hub: Annotated[str, Parameter(help="Address of the hub, such as https://host:8420.")],
    listen: Annotated[str, Parameter(help="HOST:PORT in the cluster's network to listen on.")] = "",
    spool: Annotated[
        Path | None, Parameter(help="Folder on a shared file system for pilots without network.")
    ] = None,
    proxy: Annotated[
        str | None, Parameter(help="HTTP proxy; default: https_proxy; `none` uses no proxy.")
    ] = None,
    most: Annotated[int, Parameter(help="Connections at once.")] = RelayBounds().connections,
    idle: Annotated[str, Parameter(help="Close connections that are idle for this time.")] = "10m",
    at: Common = HERE,
) -> Answer:
    """Relay connections between the hub and pilots without outside network, until Ctrl-C."""
    del at
    way = connect.route(hub, proxy)
    if not listen and spool is None:
        raise errors.UsageError("there is nothing to relay", hint="give `--listen` or `--spool`")
    place = _address(listen) if listen else None
    logger = logging.getLogger("pilotage")
    logger.addHandler(_Words())
    logger.setLevel(logging.INFO)
    one = Relay(way, RelayBounds(most, units.seconds(idle)))
    try:
        anyio.run(_run, one, way, place, spool)
    except* errors.PilotageError as group:
        raise _first(group) from None
    tally = one.tally
    words = f"{formatting.count(tally.served, 'connection')} carried, {tally.refused} refused"
    facts = {"served": tally.served, "refused": tally.refused, "up": tally.up, "down": tally.down}
    return Answer(facts, notes=(words,))


async def _run(one: Relay, way: Route, place: tuple[str, int] | None, folder: Path | None) -> None:
    through = f" through the proxy {way.via[0]}:{way.via[1]}" if way.via[0] else ""
    target = f"the hub {way.host}:{way.port}{through}"
    async with anyio.create_task_group() as tasks:
        if place is not None:
            server = await one.listen(*place)
            for each in server.sockets:
                host, port = each.getsockname()[:2]
                printing.say(f"relays {host}:{port} to {target}")
        if folder is not None:
            tasks.start_soon(one.watch, str(folder))
            printing.say(f"relays the streams in {folder} to {target}")
        tasks.start_soon(one.report)
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                break
        tasks.cancel_scope.cancel()
    await one.end()


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise errors.UsageError(f"{listen!r} is no HOST:PORT", hint="such as 10.0.0.1:8421")
    return host.strip("[]"), int(port)


def _first(group: BaseExceptionGroup[errors.PilotageError]) -> errors.PilotageError:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


class _Words(logging.Handler):
    """Prints what the relay logs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        printing.say(f"{formatting.clock(record.created)} {record.getMessage()}")
