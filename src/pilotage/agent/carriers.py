"""All that jobs come by at one agent: a broker or a hub, and further hubs, each by itself."""

from __future__ import annotations

import functools

import anyio
import msgspec
from anyio.abc import TaskGroup

from pilotage.agent import pilots
from pilotage.agent.connection import Parties, Talk
from pilotage.agent.settings import Settings
from pilotage.agent.status import Connection


class _Kept(msgspec.Struct):
    """One carrier, and since when its connection is as it is."""

    talk: Talk
    scope: anyio.CancelScope
    trouble: str
    since: float


class Carriers:
    """Speaks with each carrier that the settings name; none of them disturbs another."""

    def __init__(self, among: Parties) -> None:
        """Get ready; nothing happens before `run`."""
        self._among = among
        self._kept: dict[str, _Kept] = {}
        self._taking = True
        among.settings.on_renewal.append(self._renew)

    @property
    def away(self) -> frozenset[str]:
        """The users that are hubs without a connection."""
        talks = [one.talk for one in self._kept.values() if one.talk.trouble]
        return frozenset(one.settings().hub.user for one in talks if one.settings().hub.url)

    def waiting(self, carrier: str) -> int:
        """Return how many status messages wait to be sent by a carrier."""
        kept = self._kept.get(carrier)
        return kept.talk.waiting if kept else 0

    def connections(self) -> tuple[Connection, ...]:
        """Describe how it goes with each carrier, and since when."""
        found = []
        for name, one in self._kept.items():
            settings, trouble = one.talk.settings(), one.talk.trouble
            if trouble != one.trouble:
                one.trouble, one.since = trouble, self._among.project.clock.now()
            found.append(
                Connection(
                    name=name, kind="hub" if settings.hub.url else "broker",
                    place=settings.source, site=settings.site, trouble=trouble, since=one.since,
                    user=settings.hub.user if settings.hub.url else "",
                )
            )  # fmt: skip
        return tuple(found)

    def take(self, *, jobs: bool) -> None:
        """Take jobs, or leave them where they come from."""
        self._taking = jobs
        for one in self._kept.values():
            one.talk.take(jobs=jobs)

    async def run(self) -> None:
        """Speak with all carriers until cancelled."""
        settings = self._among.settings
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    dialled = _dialled(settings())
                    cancel = functools.partial(
                        pilots.cancel_unserved, settings=settings(),
                        now=self._among.project.clock.now(),
                    )  # fmt: skip
                    if await self._among.writer.run(cancel):
                        self._among.poke()
                    self._follow(tasks, settings().carriers)
                    await settings.other(_dialled, dialled)
        finally:
            self._kept.clear()

    def _follow(self, tasks: TaskGroup, names: tuple[str, ...]) -> None:
        """Begin with carriers that are new, and end those that are gone."""
        for name in self._kept.keys() - set(names):
            self._kept.pop(name).scope.cancel()
        for name in names:
            if name not in self._kept:
                talk = Talk(name, self._among)
                talk.take(jobs=self._taking)
                now = self._among.project.clock.now()
                kept = _Kept(talk, anyio.CancelScope(), talk.trouble, now)
                self._kept[name] = kept
                tasks.start_soon(self._keep, name, kept)

    async def _keep(self, name: str, kept: _Kept) -> None:
        label = f"messages of {name}" if name else "messages"
        with kept.scope:
            await self._among.parts.keep(label, kept.talk.run)

    def _renew(self, carrier: str) -> None:
        if carrier in self._kept:
            self._kept[carrier].talk.renew()


def _dialled(settings: Settings) -> object:
    """Return what is another value if a carrier comes or goes."""
    return settings.carriers, sorted(one.user for one in settings.dialled.values())
