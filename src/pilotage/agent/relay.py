"""Ways for pilots on worker nodes that have no way out to their hubs."""

from __future__ import annotations

import functools

import anyio
import msgspec

from pilotage.agent import pilots
from pilotage.agent.live_settings import Followed
from pilotage.agent.settings import Settings
from pilotage.base import errors
from pilotage.base.supervise import Supervisor
from pilotage.batch.tunnels import Tunnels
from pilotage.link import connect
from pilotage.link.relay import Relay

_LOOPBACK = "127.0.0.1:0"


class Way(msgspec.Struct, frozen=True):
    """Where bytes to one hub are taken."""

    url: str
    #: An address of the cluster, or one of this machine that a port of the login node leads to.
    listen: str
    proxy: str = ""


def ways(settings: Settings) -> tuple[Way, ...]:
    """Return where bytes are taken, for each hub that needs it."""
    found = [Way(settings.relay.hub, settings.relay.listen)] if settings.relay.hub else []
    found += [Way(one.url, one.relay, one.proxy) for one in settings.dialled.values()]
    if through_login(settings):
        found = [msgspec.structs.replace(one, listen=_LOOPBACK) for one in found]
    return tuple(dict.fromkeys(one for one in found if one.listen))


def through_login(settings: Settings) -> bool:
    """Say whether pilots come through the login node that the agent reaches by SSH."""
    return bool(settings.batch.host) and settings.batch.link == "relay"


class Wayout:
    """Carries bytes between pilots and hubs."""

    def __init__(self, settings: Followed, parts: Supervisor) -> None:
        """Get ready; nothing happens before `run`."""
        self._settings, self._parts = settings, parts
        #: The port here that leads to each hub, by its address.
        self._ports: dict[str, int] = {}

    async def run(self) -> None:
        """Carry bytes by the settings in force, until cancelled."""
        while True:
            asked = ways(self._settings())
            async with anyio.create_task_group() as tasks:
                for one in asked:
                    carry = functools.partial(self._carry, one)
                    tasks.start_soon(self._parts.keep, f"the relay to {one.url}", carry)
                await self._settings.other(ways, asked)
                tasks.cancel_scope.cancel()

    async def _carry(self, way: Way) -> None:
        host, _, port = way.listen.rpartition(":")
        relay = Relay(connect.route(way.url, way.proxy or None))
        server = await relay.listen(host.strip("[]"), int(port))
        self._ports[way.url] = server.sockets[0].getsockname()[1]
        try:
            await anyio.sleep_forever()
        finally:
            del self._ports[way.url]
            server.close()
            with anyio.CancelScope(shield=True):
                await relay.end()

    async def link(self, doors: Tunnels, settings: Settings, url: str) -> str:
        """Return how pilots reach a hub; `settings` are those of what its orders come by."""
        if not through_login(settings) or all(one.url != url for one in ways(self._settings())):
            return pilots.link(settings, url)
        port = self._ports.get(url)
        if port is None:
            raise errors.Unavailable("there is no way through the login node yet")
        door = f"hub-{settings.carrier}" if settings.carrier else "hub"
        return f"relay:{doors.host}:{await doors.open(door, port)}"
