"""What systemd wants to hear of a service: that it is ready, that it lives, and that it stops."""

from __future__ import annotations

import contextlib
import os
import socket

import anyio

#: How often it hears that we live, if it does not say how often it wants to, in seconds.
_USUAL_S = 30.0


def tell(words: str) -> None:
    """Tell systemd, if it started us."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place.startswith(("/", "@")):
        return
    address = "\0" + place[1:] if place.startswith("@") else place
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.setblocking(False)
        one.sendto(words.encode(), address)


async def live() -> None:
    """Say again and again that the event loop turns; when it hangs, we are started anew."""
    asked = os.environ.get("WATCHDOG_USEC", "")
    pause = int(asked) / 2e6 if asked.isdecimal() and int(asked) else _USUAL_S
    while True:
        tell("WATCHDOG=1")
        await anyio.sleep(pause)
