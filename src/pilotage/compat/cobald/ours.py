"""Objects of ours that a COBalD configuration may name: pools of a hub, services."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from pilotage.base import errors
from pilotage.client import where
from pilotage.client.where import Address
from pilotage.compat.cobald import build, tardis
from pilotage.compat.cobald.build import Loaded
from pilotage.compat.cobald.names import Maker, stage
from pilotage.pool.guarded import RETRY, Guarded
from pilotage.pool.pipeline import Pipeline
from pilotage.pool.remote import PoolHub, RemotePool, Voice

_log = logging.getLogger("pilotage.pool")
#: A service that ran for this many seconds did not fail at its start.
_WELL_S = 120.0


@dataclass(eq=False)
class Services:
    """What runs beside a pipeline."""

    _waiting: list[Any] | None = field(default_factory=list, init=False)

    def forget(self) -> None:
        """Let go of what was made for nothing."""
        if self._waiting is not None:
            self._waiting.clear()

    def adopt(self, made: Any) -> None:  # noqa: ANN401 - whatever others make
        """Run something if it is a service: at once, or with all others."""
        if not hasattr(made, "__service_unit__") or not callable(getattr(made, "run", None)):
            return
        if self._waiting is None:
            threading.Thread(target=_keep, args=(made,), daemon=True).start()
        else:
            self._waiting.append(made)

    def start(self) -> None:
        """Run all services, and from now on each as it is made."""
        found, self._waiting = self._waiting or [], None
        for one in found:
            self.adopt(one)


def _keep(service: Any) -> None:  # noqa: ANN401
    """Run a service until it ends by itself."""
    name, failures = type(service).__qualname__, 0
    while True:
        began = time.monotonic()
        try:
            _run(service)
        except Exception as error:  # noqa: BLE001 - code of others: the rest goes on
            failures = 1 if time.monotonic() - began > _WELL_S else failures + 1
            wait = RETRY.bound(failures)
            _log.error("%s has failed and is started again in %g s: %s", name, wait, error)
            time.sleep(wait)
        else:
            return


def _run(service: Any) -> None:  # noqa: ANN401
    flavour = service.__service_unit__.flavour
    match getattr(flavour, "__name__", ""):
        case "trio":
            # It came with the service.
            flavour.run(service.run)
        case "asyncio":
            asyncio.run(service.run())
        case _:
            service.run()


#: What needs no secrecy on its way.
_NEAR = ("localhost", "127.0.0.1", "::1")
_SECTION = "tardis"
_TOKEN = re.compile(r"pil_[a-z]_[A-Za-z0-9_-]{1,200}")


class Seat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pool of a hub, as a configuration names it."""

    name: str
    #: Address of the hub; that of the project here, or of the environment, if there is none.
    hub: str = ""
    #: File with a token for it, and with the authority that vouches for it.
    token_file: str = ""
    ca: str = ""


class Setup:
    """Reads one configuration, and knows the pools of hubs in it."""

    def __init__(
        self, file: Path, voice: Voice, *, allow: tuple[str, ...] = (), start: Path | None = None
    ) -> None:
        """Begin with no pool; `start` is where to look for the project."""
        if file.suffix == ".py":
            message = f"{file}: configurations in Python are not run"
            hint = "write it as YAML; classes of your own are named by `__type__` there"
            raise errors.UsageError(message, hint=hint)
        if file.suffix not in {".yaml", ".yml"}:
            raise errors.UsageError(f"{file} is neither .yaml nor .yml")
        self._file = file
        self.voice = voice
        self._allow = allow
        self._start = start
        self._section: Any = None
        self._hubs: dict[Seat, PoolHub] = {}
        #: What others make and has a life of its own.
        self.services = Services()
        #: Pools of hubs.
        self.leaves: list[Guarded] = []

    def load(self) -> Loaded:
        """Read the file; what it steers must have a controller."""
        self.leaves.clear()
        self.services.forget()
        found = build.load_file(
            str(self._file), allow=self._allow, makers=self._makers(), sections=(_SECTION,),
            prepare=self._prepare, born=self.services.adopt,
        )  # fmt: skip
        if not isinstance(found.pipeline, Pipeline):
            message = f"{self._file}: there is no controller: nothing decides here"
            raise errors.ConfigError(message, hint="the first of `pipeline` is a controller")
        return found

    def close(self) -> None:
        """End all connections."""
        for hub in self._hubs.values():
            hub.close()

    def _makers(self) -> Mapping[str, Maker]:
        seat = stage(Seat)

        def pilots(*args: Any, **keys: Any) -> Guarded:  # noqa: ANN401 - from a file
            return self._leaf(seat(*args, **keys))

        return {
            "!PilotagePool": pilots,
            "pilotage.pool.Pilots": pilots,
            "!TardisPoolFactory": self._tree,
            "tardis.resources.poolfactory.create_composite_pool": self._tree,
        }

    def _prepare(self, sections: dict[str, Any]) -> None:
        self._section = sections.get(_SECTION)

    def _tree(self, configuration: str = "") -> Any:  # noqa: ANN401 - a composite
        if configuration:
            found = tardis.load(self._path(str(configuration)))
        elif self._section is not None:
            found = tardis.read(self._section, str(self._file))
        else:
            hint = "`configuration` names a file of TARDIS, or there is a section `tardis`"
            raise errors.ConfigError("nothing says which sites there are", hint=hint)
        return tardis.tree(found, lambda name: self._leaf(Seat(name)))

    def _leaf(self, seat: Seat) -> Guarded:
        place = msgspec.structs.replace(seat, name="")
        hub = self._hubs.setdefault(place, PoolHub(lambda: self._find(place)))
        made = Guarded(RemotePool(seat.name, hub, self.voice))
        self.leaves.append(made)
        return made

    def _find(self, seat: Seat) -> Address:
        if not seat.hub:
            return where.find(start=self._start)
        token = _secret(self._path(seat.token_file)) if seat.token_file else None
        ca = str(self._path(seat.ca)) if seat.ca else None
        # The token of the environment is for the hub that is named there, and for no other.
        own = os.environ.get(where.HUB, "").rstrip("/") == seat.hub.rstrip("/")
        found = where.find(seat.hub, token, ca, None if own else self._start or Path.cwd())
        if not found.secure and found.host not in _NEAR:
            message = f"{seat.hub} is not encrypted, and a token would travel there"
            raise errors.ConfigError(message, hint="use https://")
        return found

    def _path(self, name: str) -> Path:
        """Find a file beside the configuration, or from here, as COBalD does."""
        beside = self._file.parent / name
        return beside if beside.exists() else Path(name)


def _secret(file: Path) -> str:
    hint = "`pilotage token new pool` makes one"
    try:
        found = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read the token in {file}: {error}"
        raise errors.ConfigError(message, hint=hint) from None
    if not _TOKEN.fullmatch(found):
        # It would be sent to whatever hub the configuration names.
        raise errors.ConfigError(f"there is no token in {file}", hint=hint)
    return found
