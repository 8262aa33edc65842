"""The files that describe the hubs that a factory feeds: `hubs/NAME.toml`, closed and checked."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import ssl
import stat
from pathlib import Path
from typing import Any

import msgspec

from pilotage.base import errors, units
from pilotage.batch import files as sites
from pilotage.batch.model import FACTORY
from pilotage.batch.wish import Wish
from pilotage.edge.factory.wire import MOST_HELD
from pilotage.link import connect
from pilotage.node.dial import Route
from pilotage.rule import named

FOLDER = "hubs"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
#: Bytes of a file with certificates.
_LARGEST = 1 << 20
_FAR = 2**53
#: Characters of a queue or an account that are told when it is refused.
_WORD = 40
#: Cores for one hub: all its pilots must go into one report, also those that ended meanwhile.
_MOST = MOST_HELD // 2


class Hub(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A file `hubs/NAME.toml` of a factory."""

    #: Where the hub is, such as `"https://hub.example.org:8420"`.
    url: str
    #: File with a token for `factory` of that hub, which nobody else may read.
    token_file: str
    #: Which of its sites are which of ours: `theirs = "ours"`.
    sites: dict[str, str]
    #: Cores that its pilots have at most, those that wait in the batch queue too.
    maximum: int
    #: Pilots that may wait in the batch queue at once.
    pending: int = 10
    #: File with the hub's certificate, if it made its own.
    ca: str = ""
    #: Cores of one pilot, at most.
    cpus: int = 64
    #: Memory of one pilot, at most, such as `"64G"`; empty means any amount. One that names none
    #: has what the batch system gives it.
    memory: str = ""
    #: GPUs of one pilot, at most.
    gpus: int = 0
    #: Wall time of one pilot, at most, such as `"24h"`, also if it names none; empty means what
    #: the queue allows.
    time: str = ""
    #: Queues that it may name; else pilots go to the default of the site.
    queues: tuple[str, ...] = ()
    #: Accounts that it may name; else the default of the site is charged.
    accounts: tuple[str, ...] = ()
    #: Time between two reports.
    interval: str = "3s"
    #: For people.
    about: str = ""

    @property
    def seconds(self) -> float:
        """Seconds between two reports."""
        return units.seconds(self.interval)

    def objection(self, wish: Wish) -> str:
        """Say why such a pilot is not started for this hub; empty if it may be."""
        for name, asked, most in (
            ("cores", wish.cpus, self.cpus),
            ("bytes of memory", wish.memory or 0, units.size(self.memory) if self.memory else _FAR),
            ("GPUs", wish.gpus, self.gpus),
            ("seconds", wish.time or 0.0, units.seconds(self.time) if self.time else _FAR),
        ):
            if not 0 <= asked <= most:
                told = max(-_FAR, min(asked, _FAR))
                return f"this factory starts no pilot with {told:g} {name}: at most {most:g}"
        if not 1 <= wish.cpus <= self.maximum:
            return f"this factory gives this hub {self.maximum} cores, and none to {wish.cpus}"
        for name, word, allowed in (
            ("queue", wish.queue, self.queues), ("account", wish.account, self.accounts)
        ):  # fmt: skip
            if word and word not in allowed:
                short = word if len(word) <= _WORD else word[:_WORD] + "…"
                return f"this factory does not use the {name} {short!r} for this hub"
        if wish.idle is not None and not 0 < wish.idle < _FAR:
            return f"a pilot cannot be idle for {wish.idle:g} s"
        return ""


class Known(msgspec.Struct, frozen=True):
    """A hub as it is spoken with."""

    hub: Hub
    token: str
    way: Route
    #: What vouches for it, as text; empty if the system's own authorities do.
    vouch: str
    #: By sites of ours: the wall time of pilots that name none, in seconds, if that is bounded.
    times: dict[str, float]


def file_of(root: Path, name: str) -> Path:
    """Return the file of a hub of the factory in `root`."""
    return root / FOLDER / f"{name}{named.SUFFIX}"


def names(root: Path) -> list[str]:
    """List the hubs of a factory by name, those with mistakes in their files too."""
    return named.names(root / FOLDER)


def identity(state: Path, name: str) -> str:
    """Return the name that this factory has among all for one of its hubs.

    Two files for one hub are two factories to it: it refuses the second, and no pilot is started
    for each.
    """
    own = f"{sites.identity(state)}/{name}"
    return hashlib.sha256(own.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def mark(root: Path, name: str) -> tuple[tuple[int, int, int], ...]:
    """Say how the file of a hub is now, and those that it names: another mark is another file."""
    found = [file_of(root, name)]
    with contextlib.suppress(errors.PilotageError):
        hub = read(root, name)
        found += [root / FOLDER / one for one in (hub.token_file, hub.ca) if one]
    return tuple(_facts(one) for one in found)


def _facts(file: Path) -> tuple[int, int, int]:
    try:
        facts = file.stat()
    except (OSError, ValueError):
        return 0, 0, 0
    return facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size


def read(root: Path, name: str) -> Hub:
    """Read the file of one hub."""
    file = file_of(root, name)
    try:
        source = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        message = f"there is no hub `{name}`"
        hint = (
            f"hubs are {', '.join(names(root)) or 'none yet'}: files `{FOLDER}/NAME{named.SUFFIX}`"
        )
        raise errors.NotFound(message, hint=hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise errors.ConfigError(f"{file}: {error}") from error
    return parse(source, name, file)


def parse(source: str, name: str, file: Path) -> Hub:
    """Read the text of a hub's file; say where a mistake is."""

    def make(found: dict[str, Any]) -> Hub:
        hub = msgspec.convert(found, Hub)
        _check(name, hub)
        return hub

    return named.parse(source, file, make, "factories")


def _check(name: str, hub: Hub) -> None:
    """Raise `ConfigError` for what cannot be."""
    if not _NAME.fullmatch(name):
        message = f"{name!r} cannot be the name of a hub"
        raise errors.ConfigError(message, hint="letters, digits, `-` and `_`")
    for key, least in (("maximum", 1), ("pending", 1), ("cpus", 1), ("gpus", 0)):
        if not least <= getattr(hub, key) <= _MOST:
            raise errors.ConfigError(f"`{key}` cannot be {getattr(hub, key)}")
    if not hub.sites or not all(_NAME.fullmatch(one) for one in hub.sites):
        raise errors.ConfigError(
            "`sites` cannot be like this", hint='`sites = { theirs = "ours" }`'
        )
    if not hub.seconds >= 0.1:
        raise errors.ConfigError(f"`interval` cannot be {hub.interval}")
    for written, measure in ((hub.memory, units.size), (hub.time, units.seconds)):
        if written:
            measure(written)


def load(root: Path, name: str) -> Known:
    """Read all that is needed to speak with a hub."""
    hub = read(root, name)
    times = {}
    for ours in hub.sites.values():
        site = sites.read(root, ours)
        if hub.time:
            usual = site.defaults.time or hub.time
            times[ours] = min(units.seconds(usual), units.seconds(hub.time))
        if site.batch == FACTORY:
            message = f"{file_of(root, name)}: `{ours}` is a site that this factory cannot reach"
            raise errors.ConfigError(message, hint="`batch` in its file is the batch system there")
    ca = str(root / FOLDER / hub.ca) if hub.ca else ""
    vouch = _vouch(ca) if ca else ""
    way = connect.route(hub.url, None, ca)
    if way.tls is None and not connect.is_near(way):
        message = f"{hub.url} is not encrypted, and a token would travel there"
        raise errors.ConfigError(message, hint="`url` begins with https://")
    return Known(hub, _token(root / FOLDER / hub.token_file), way, vouch, times)


def _vouch(file: str) -> str:
    try:
        with open(file, encoding="ascii") as opened:
            found = opened.read(_LARGEST)
        ssl.create_default_context(cadata=found)
    except (OSError, ValueError) as error:
        message = f"cannot use the certificate {file}: {error}"
        raise errors.ConfigError(message, hint="`ca` is a PEM file, from the hub") from None
    return found


def _token(file: Path) -> str:
    """Read a secret that nobody else can have read."""
    try:
        with file.open(encoding="ascii") as opened:
            facts = os.fstat(opened.fileno())
            found = opened.read(_LARGEST).strip()
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read the token in {file}: {error}"
        hint = "`pilotage token new factory --site NAME` at the hub makes one"
        raise errors.ConfigError(message, hint=hint) from None
    if stat.S_IMODE(facts.st_mode) & 0o077:
        message = f"others may read the token in {file}"
        raise errors.ConfigError(message, hint=f"`chmod 600 {file}`, and have a new token made")
    if not found or not found.isprintable() or " " in found:
        raise errors.ConfigError(f"there is no token in {file}", hint="it holds one line of text")
    return found
