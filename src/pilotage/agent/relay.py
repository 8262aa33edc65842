"""The way out for pilots on worker nodes that have none."""

from __future__ import annotations

from pilotage.agent.live_settings import Followed
from pilotage.agent.settings import Settings
from pilotage.link import connect
from pilotage.link.relay import Relay


async def run(settings: Followed) -> None:
    """Carry bytes between pilots and the hub that the settings name, until cancelled."""

    def part(one: Settings) -> object:
        return one.relay

    while True:
        asked = settings().relay
        if not asked.hub:
            await settings.other(part, asked)
            continue
        host, _, port = asked.listen.rpartition(":")
        relay = Relay(connect.route(asked.hub, None))
        server = await relay.listen(host.strip("[]"), int(port))
        try:
            await settings.other(part, asked)
        finally:
            server.close()
            await relay.end()
