"""Settings of a running agent: a valid change of the file takes effect, a mistake is reported.

Certificates may be renewed while the agent runs; connections that use them are restored then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread

from pilotage.agent import settings
from pilotage.agent.settings import Settings
from pilotage.base import errors
from pilotage.data.transfer.version import Version

_log = logging.getLogger("pilotage.edge")
#: Seconds between checks of the files.
_LOOK_S = 1.0


class LiveSettings:
    """The settings in force."""

    def __init__(self, file: Path, hub: str = "") -> None:
        """Read them for the first time; a mistake is an error now. `hub` is one named beside."""
        self._file, self._hub = file, hub
        self._mark = Version.at(str(file))
        self.now: Settings = settings.read(file, hub)
        self._marks = self._certificates()
        #: The error in the file; the previous settings stay in force then.
        self.trouble = ""
        self._changed = anyio.Event()
        #: Called with each carrier whose certificates or token have changed.
        self.on_renewal: list[Callable[[str], None]] = []

    def __call__(self) -> Settings:
        """Return the settings in force."""
        return self.now

    async def other(self, part: Callable[[Settings], object], than: object) -> None:
        """Return once a part of the settings has changed."""
        while part(self.now) == than:
            await self._changed.wait()

    async def run(self) -> None:
        """Check the files until cancelled."""
        while True:
            await anyio.sleep(_LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Read what has changed."""
        mark, marks = await anyio.to_thread.run_sync(
            lambda: (Version.at(str(self._file)), self._certificates())
        )
        if mark != self._mark:
            self._mark = mark
            await self._read()
            marks = self._certificates()
        before, self._marks = self._marks, marks
        for carrier in [name for name, mark in marks.items() if before.get(name, mark) != mark]:
            source = self.now.by(carrier).source
            _log.info("certificates have changed: connecting to %s again", source)
            for tell in self.on_renewal:
                tell(carrier)

    async def _read(self) -> None:
        try:
            fresh = await anyio.to_thread.run_sync(settings.read, self._file, self._hub)
            if fresh.site != self.now.site:
                message = (
                    f"the site {self.now.site} cannot become {fresh.site} while the agent runs"
                )
                raise errors.ConfigError(message, hint="stop the agent first")
        except errors.PilotageError as error:
            self.trouble = f"{error}; the previous settings stay in force"
            _log.error("%s", self.trouble)
            return
        self.now, self.trouble = fresh, ""
        _log.info("%s has changed and was reloaded", self._file.name)
        self._changed.set()
        self._changed = anyio.Event()

    def _certificates(self) -> dict[str, tuple[Version | None, ...]]:
        """Return the versions of certificate and token files by carrier."""
        found = {}
        for carrier in self.now.carriers:
            one = self.now.by(carrier)
            # A new token file is used at once.
            hub = (one.hub.ca, one.hub.token_file) if one.hub.url else ()
            files = (one.bus.ca, one.bus.certificate, one.bus.key, *hub)
            found[carrier] = tuple(Version.at(path) for path in files)
        return found
