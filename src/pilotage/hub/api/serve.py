"""The hub's port with everything behind it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import msgspec
from starlette.types import ASGIApp

from pilotage import text
from pilotage.hub import auth, front, tls
from pilotage.hub.api.app import Api, make
from pilotage.hub.api.call import Hands
from pilotage.hub.config import Hub

#: Tells programs on this machine where the hub is.
FILE = "hub.json"


class Address(msgspec.Struct, frozen=True):
    """Where the hub is, for programs on this machine."""

    url: str
    #: The certificate that they must trust; empty if they need none.
    ca: str
    pid: int
    #: The first token of this machine; not written down here.
    token: str = ""

    @property
    def page(self) -> str:
        """The address of the page; what follows `#` never leaves the browser."""
        return f"{self.url}/#token={self.token}"


async def serve(
    hands: Hands,
    link: front.Link,
    *,
    events: ASGIApp | None = None,
    made: Callable[[Api], None] = lambda _: None,
    ready: Callable[[Address], None] = lambda _: None,
) -> None:
    """Serve until cancelled; `made` is told of the parts, and `ready` where the port is."""
    project = hands.project
    settings, state = project.settings.hub, project.state
    encrypted = tls.context(settings, state)
    roam = settings.port == Hub().port
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(front.listen(settings.host, settings.port, roam=roam))
        token = await anyio.to_thread.run_sync(
            lambda: hands.writer.do(lambda db: auth.at_home(db, state, hands.clock.now()))
        )
        api = make(hands, events)
        made(api)
        where = _address(settings, opened.getsockname()[1], state, token)
        stack.enter_context(_written_down(where, state))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(api.run)
            ready(where)
            await front.serve(api.app, link, opened, tls=encrypted, closing=api.live.close)


def _address(settings: Hub, port: int, state: Path, token: str) -> Address:
    everywhere = settings.host in {"", "0.0.0.0", "::"}  # noqa: S104 - to name it, not to listen
    host = "127.0.0.1" if everywhere else settings.host
    shown = f"[{host}]" if ":" in host else host
    scheme = "https" if tls.encrypted(settings) else "http"
    ca = tls.authority(settings, state)
    return Address(f"{scheme}://{shown}:{port}", str(ca or ""), os.getpid(), token)


@contextlib.contextmanager
def _written_down(where: Address, state: Path) -> Iterator[None]:
    file = state / FILE
    facts = {"url": where.url, "ca": where.ca, "pid": where.pid}
    fresh = file.with_suffix(".new")
    fresh.write_text(text.dump(facts) + "\n")
    fresh.replace(file)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
