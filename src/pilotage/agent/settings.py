"""Settings of an agent: `agent.toml` read and checked, and a new file written.

A folder of a factory, which earlier versions had, is recognised and the settings of an agent that
replaces it are shown: it started pilots for the hubs in `hubs/` at the sites in `sites/`.
"""

from __future__ import annotations

import functools
import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from pilotage.agent.app import files
from pilotage.base import errors, toml, units
from pilotage.batch import model
from pilotage.batch.model import SiteSettings
from pilotage.bus.amqp.model import BrokerSettings
from pilotage.data.transfer.keys import Credentials

FOLDER = "hubs"
#: Keys that both have, and what the same is called in the file of an application.
_LIMITS = {
    "maximum": "maximum", "pending": "pending", "cpus": "cpus", "memory": "memory", "gpus": "gpus",
    "time": "time", "queues": "queues", "accounts": "projects",
}  # fmt: skip
_APP = 'apps/pilot.toml:\ntakes = "pilot"'


def settings_for_factory(root: Path) -> str:
    """Return what the files of an agent would say; empty if a folder is not that of a factory."""
    found = {name: _read(root / FOLDER / f"{name}.toml") for name in toml.names(root / FOLDER)}
    if not found:
        return ""
    ours = sorted({site for hub in found.values() for site in _sites(hub).values()})
    # One agent serves one site: further ones have folders of their own.
    here = ours[0] if ours else "NAME"
    parts = [
        f"agent.toml:\nsite = {_toml(here)}\n\n[batch]\n# the keys of sites/{here}.toml",
        *(_hub(name, hub, here) for name, hub in found.items()),
        f"{_APP}\nusers = {_toml([*found])}\n\n[limits]\nmaximum = 1\ncpus = 64",
        *(_limits(name, hub) for name, hub in found.items()),
    ]
    parts += [f"{one} has an agent in a folder of its own" for one in ours[1:]]
    return "\n\n".join(parts)


def _hub(name: str, hub: Mapping[str, Any], here: str) -> str:
    theirs = [theirs for theirs, ours in _sites(hub).items() if ours == here]
    site = theirs[0] if theirs else here
    facts = {"url": hub.get("url", ""), "token_file": f"{FOLDER}/{name}.token", "site": site}
    if hub.get("ca"):
        facts["ca"] = f"{FOLDER}/{hub['ca']}"
    make = f"# with another token: `pilotage token new agent --site {site}` at that hub"
    return "\n".join([f"[hubs.{name}]", make, *_lines(facts)])


def _limits(name: str, hub: Mapping[str, Any]) -> str:
    kept = {_LIMITS[key]: value for key, value in hub.items() if key in _LIMITS}
    return "\n".join([f"[user.{name}]", *_lines(kept)])


def _sites(hub: Mapping[str, Any]) -> dict[str, str]:
    found = hub.get("sites")
    return {str(one): str(other) for one, other in found.items()} if isinstance(found, dict) else {}


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _lines(facts: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in facts.items()]


def _toml(value: object) -> str:
    """Write a text, a number or a list of them, as TOML and JSON do."""
    return json.dumps(value, default=str)


#: An address to listen at.
_PLACE = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:\s]+):[0-9]{1,5}")
#: Settings that are durations.
_MEASURES: dict[tuple[str, ...], Callable[[Any], object]] = {
    ("heartbeat",): units.seconds, ("keep", "done"): units.seconds,
    ("keep", "failed"): units.seconds, ("keep", "refused"): units.seconds,
    ("limits", "free"): units.size, ("limits", "cache"): units.size,
}  # fmt: skip


class SiteBroker(BrokerSettings, frozen=True, kw_only=True):
    """The broker, and the topics of this site."""

    #: Seconds between two attempts to connect, at most; the first come sooner.
    retry: float = 30.0
    #: Topics of jobs, each with the sender of messages without a name that the broker has
    #: verified; empty means that such messages are refused. No topics means `job.SITE`.
    jobs: dict[str, str] = {}  # noqa: RUF012 - a struct
    #: The topic of controls; empty means `control.SITE`.
    control: str = ""
    #: Topic of status messages unless a job names one; empty means `status.SITE`.
    status: str = ""
    #: The same for jobs that came as definitions of Balsam's.
    balsam_status: str = "balsam_job_status"
    #: Topics that jobs may name for their status messages.
    replies: tuple[str, ...] = ("status.**",)
    #: Topic of heartbeats; empty means `heartbeat.SITE`.
    beat: str = ""
    #: Topic of reports of refused messages; empty means `refused.SITE`.
    refused: str = ""
    #: Maximal number of messages that are received and not stored yet.
    ahead: int = 500


class DialledHub(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A hub that the agent dials at its port."""

    #: Such as `https://hub.example.org:8420`.
    url: str = ""
    #: PEM file of the CA certificates of the hub; empty means those of the system.
    ca: str = ""
    #: File of the token that the agent enrols with; it is read until that has happened. In
    #: `[hubs.NAME]` it is `NAME-token` unless it is named.
    token_file: str = "hub-token"  # noqa: S105 - a file's name
    #: What this hub calls the site; empty means `site`.
    site: str = ""
    #: `http://[user:password@]host:port` of a proxy; empty means what the environment says.
    proxy: str = ""
    #: User that the jobs of the hub belong to, for applications and limits of single users. In
    #: `[hubs.NAME]` it is NAME unless it is named.
    user: str = "hub"
    #: `HOST:PORT` in the cluster's own network at which this agent relays connections to this hub,
    #: for pilots on nodes without outside network; empty means none.
    relay: str = ""
    #: Seconds between pings of the connection.
    heartbeat: float = 15.0
    #: Seconds that sending may take.
    patience: float = 30.0
    #: Seconds between two attempts to connect, at most; the first come sooner.
    retry: float = 30.0


class RunningLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Jobs that run at once; the others wait. 0 means any number."""

    #: Of all.
    jobs: int = 0
    #: Of each user.
    user: int = 0
    #: Of single users, by name.
    users: dict[str, int] = {}
    #: Of each queue.
    queue: int = 0
    #: Of single queues, by name.
    queues: dict[str, int] = {}
    #: Bytes that must stay free where jobs have their folders.
    free: str = "1G"
    #: Transfers at once.
    transfers: int = 8
    #: Bytes of inputs that are kept for further jobs that read the same; 0 means none.
    cache: str = "10G"


class KeepTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long ended jobs are kept."""

    #: Jobs that ended well, with their folders.
    done: str = "7d"
    #: All other jobs.
    failed: str = "30d"
    #: Messages that were refused.
    refused: str = "30d"


class RelaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A relay to a hub that the agent does not dial, for nodes without outside network."""

    #: Address of the hub.
    hub: str = ""
    #: `HOST:PORT` in the cluster's own network to listen at.
    listen: str = ""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A file `agent.toml`."""

    #: The name of the site in messages.
    site: str
    #: Users who may cancel any job, and drain the site.
    admins: tuple[str, ...] = ()
    #: Time between two heartbeats.
    heartbeat: str = "30s"
    #: The broker, unless the agent dials a hub.
    bus: SiteBroker = SiteBroker()
    #: The hub, unless there is a broker.
    hub: DialledHub = DialledHub()
    #: Further hubs that the agent dials, by name.
    hubs: dict[str, DialledHub] = {}
    #: The batch system, with the settings that a site has.
    batch: SiteSettings
    #: Limits on jobs at once.
    limits: RunningLimits = RunningLimits()
    #: How long ended jobs are kept.
    keep: KeepTimes = KeepTimes()
    #: A relay for pilots.
    relay: RelaySettings = RelaySettings()
    #: Files with credentials, by host of data.
    credentials: dict[str, Credentials] = {}

    @property
    def carrier(self) -> str:
        """The carrier that these settings are for; empty means `[bus]` or `[hub]`."""
        return ""

    @property
    def here(self) -> str:
        """The name of the site at this agent, whatever a hub calls it."""
        return self.site

    @property
    def carriers(self) -> tuple[str, ...]:
        """The names of all that jobs come by; that of `[bus]` or `[hub]` is empty."""
        first = ("",) if self.hub.url or self.bus.url else ()
        return (*first, *self.hubs)

    @property
    def dialled(self) -> dict[str, DialledHub]:
        """The hubs that this agent dials, by carrier."""
        return {**({"": self.hub} if self.hub.url else {}), **self.hubs}

    @property
    def hub_users(self) -> frozenset[str]:
        """The users that hubs of `[hubs]` are; no other user may have these names."""
        return frozenset(one.user for one in self.hubs.values())

    def carrier_of(self, user: str) -> str:
        """Return the carrier of the jobs of a user."""
        return next((name for name, one in self.hubs.items() if one.user == user), "")

    def by(self, carrier: str) -> Settings:
        """Return the settings as messages of one carrier have them."""
        if not carrier:
            return self
        same = {name: getattr(self, name) for name in Settings.__struct_fields__}
        hub = self.hubs[carrier]
        changed = {"bus": SiteBroker(), "hub": hub, "site": hub.site or self.site}
        return _ByCarrier(**same | changed, carrier=carrier, here=self.site)

    @property
    def source(self) -> str:
        """Where jobs come from, without a password that may be in the address."""
        return self.hub.url or self.bus.place

    @property
    def job_topics(self) -> dict[str, str]:
        """The topics of jobs, each with the sender of messages without a name."""
        return self.bus.jobs or {f"job.{self.site}": ""}

    @property
    def control_topic(self) -> str:
        """The topic of controls."""
        return self.bus.control or f"control.{self.site}"

    @property
    def status_topic(self) -> str:
        """The default topic of status messages."""
        return self.bus.status or f"status.{self.site}"

    @property
    def beat_topic(self) -> str:
        """The topic of heartbeats."""
        return self.bus.beat or f"heartbeat.{self.site}"

    @property
    def refused_topic(self) -> str:
        """The topic of reports of refused messages."""
        return self.bus.refused or f"refused.{self.site}"


class _ByCarrier(Settings, frozen=True, kw_only=True):
    """The settings as messages of one hub of `[hubs]` have them: `site` is what it calls it."""

    carrier: str
    here: str


def read(file: Path, hub: str = "") -> Settings:
    """Read the settings; refuse a file that others may write. `hub` overrides `hub.url`."""
    try:
        source = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        message = f"there is no {file}"
        hint = "the page on the edge service shows one; `pilotage agent run FOLDER` runs it"
        if told := settings_for_factory(file.parent):
            message = f"{file.parent} is the folder of a factory, and a factory is an agent now"
            hint = f"write instead\n\n{told}"
        raise errors.NotFound(message, hint=hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise errors.ConfigError(f"{file}: {error}") from error
    if reason := files.exposed(str(file.resolve())):
        hint = "only its owner may write it, since it decides what runs here: `chmod go-w`"
        raise errors.Denied(reason, hint=hint)
    return _placed(parse(source, file, hub), file.parent.resolve())


def _placed(made: Settings, folder: Path) -> Settings:
    """Name files in full: an agent is not always begun in its own folder."""

    def full(one: msgspec.Struct, *names: str) -> dict[str, str]:
        given = {name: getattr(one, name) for name in names}
        return {name: str(folder / path) if path else "" for name, path in given.items()}

    bus = msgspec.structs.replace(made.bus, **full(made.bus, "ca", "certificate", "key"))
    hub = msgspec.structs.replace(made.hub, **full(made.hub, "ca", "token_file"))
    hubs = {
        name: msgspec.structs.replace(one, **full(one, "ca", "token_file"))
        for name, one in made.hubs.items()
    }
    keys = {
        host: Credentials(**full(one, *Credentials.__struct_fields__))
        for host, one in made.credentials.items()
    }
    return msgspec.structs.replace(made, bus=bus, hub=hub, hubs=hubs, credentials=keys)


def parse(source: str, file: Path, hub: str = "") -> Settings:
    """Make settings of the text of a file."""
    found = toml.decode(source, file)
    with toml.located(source, file, "the page on the edge service lists all settings"):
        made = toml.convert(_filled(found), Settings)
        if hub:
            made = msgspec.structs.replace(made, hub=msgspec.structs.replace(made.hub, url=hub))
        _check(made)
    return made


def _filled(found: dict[str, Any]) -> dict[str, Any]:
    """Fill in what each of several hubs is called and where its token is, unless it is said."""
    hubs = found.get("hubs")
    if not isinstance(hubs, dict):
        return found
    return {**found, "hubs": {name: _named(name, one) for name, one in hubs.items()}}


def _check(made: Settings) -> None:
    with toml.at("batch"):
        model.check(made.site, made.batch)
    _check_carrier(made)
    if made.relay.hub and not _PLACE.fullmatch(made.relay.listen):
        message = "`relay.listen` must be HOST:PORT of the cluster"
        raise errors.ConfigError(message, keys=("relay", "listen"))
    for keys, read in _MEASURES.items():
        with toml.at(*keys):
            read(functools.reduce(getattr, keys, made))
    _check_numbers(made)


def _named(name: str, table: object) -> object:
    if not isinstance(table, dict):
        return table
    return {"user": name, "token_file": f"{name}-token", **table}


def _check_carrier(made: Settings) -> None:
    """Have jobs come by a broker or a hub, and from further hubs, each a user of its own."""
    if made.hub.url and made.bus != SiteBroker():
        message = "`bus` cannot be set together with `hub`: jobs come from a broker or a hub"
        raise errors.ConfigError(message, hint="leave one of the two tables out", keys=("bus",))
    if not made.carriers:
        message = "neither `bus.url` nor `hub.url` is set: there is no source of jobs"
        raise errors.ConfigError(message, hint="name a broker or a hub")
    if made.bus.url and not made.bus.url.startswith(("amqps://", "amqp://")):
        message = "`bus.url` must begin with `amqps://`"
        raise errors.ConfigError(message, keys=("bus", "url"))
    for name in made.hubs:
        if not model.NAME.fullmatch(name):
            message = f"`hubs.{name}` is not a valid name of a hub"
            hint = "letters, digits, `-` and `_`"
            raise errors.ConfigError(message, hint=hint, keys=("hubs", name))
    users: dict[str, str] = {}
    for carrier, one in made.dialled.items():
        keys = ("hubs", carrier) if carrier else ("hub",)
        _check_hub(keys, one)
        if other := users.get(one.user):
            message = f"`{'.'.join(keys)}.user` cannot be `{one.user}`: that is `{other}.user`"
            hint = "jobs and limits are each hub's own"
            raise errors.ConfigError(message, hint=hint, keys=(*keys, "user"))
        users[one.user] = ".".join(keys)


def _check_hub(table: tuple[str, ...], one: DialledHub) -> None:
    wrong: dict[str, str] = {}
    if not one.url.startswith(("https://", "http://")):
        wrong["url"] = "must begin with `https://`"
    if not one.user:
        wrong["user"] = "cannot be empty: every job has a user"
    if one.site and not model.NAME.fullmatch(one.site):
        wrong["site"] = "must be the name of a site"
    if one.relay and not _PLACE.fullmatch(one.relay):
        wrong["relay"] = "must be HOST:PORT of the cluster"
    for key, why in wrong.items():
        keys = (*table, key)
        raise errors.ConfigError(f"`{'.'.join(keys)}` {why}", keys=keys)


def _check_numbers(made: Settings) -> None:
    """Refuse numbers that would block everything, or poll without a pause."""
    bus, limits = made.bus, made.limits
    least: dict[tuple[str, ...], tuple[float, float]] = {
        ("bus", "ahead"): (bus.ahead, 1), ("bus", "heartbeat"): (bus.heartbeat, 1),
        ("bus", "patience"): (bus.patience, 1), ("bus", "retry"): (bus.retry, 0.1),
        ("limits", "transfers"): (limits.transfers, 1),
        ("limits", "jobs"): (limits.jobs, 0), ("limits", "user"): (limits.user, 0),
        ("limits", "queue"): (limits.queue, 0),
        **{("limits", "users", name): (most, 0) for name, most in limits.users.items()},
        **{("limits", "queues", name): (most, 0) for name, most in limits.queues.items()},
    }  # fmt: skip
    for carrier, hub in {"": made.hub, **made.hubs}.items():
        table = ("hubs", carrier) if carrier else ("hub",)
        least |= {
            (*table, "heartbeat"): (hub.heartbeat, 1), (*table, "patience"): (hub.patience, 1),
            (*table, "retry"): (hub.retry, 0.1),
        }  # fmt: skip
    for keys, (value, bound) in least.items():
        if value < bound:
            raise errors.ConfigError(f"`{'.'.join(keys)}` cannot be below {bound}", keys=keys)
    if not units.seconds(made.heartbeat):
        message = "`heartbeat` cannot be 0: it is the time between two of them"
        raise errors.ConfigError(message, keys=("heartbeat",))


_BUS = ("url", "ca", "certificate", "key", "user")

_FORM = """\
# The agent of {site}. Anyone who can write this file decides what runs here.
# Changes take effect at once; a file with a mistake is ignored.

site = {site}
# Users who may cancel any job, as the broker knows them.
admins = {admins}

[{table}]
{carrier}

[batch]
batch = {batch}
# Where jobs have their folders: login and worker nodes must both see it.
folder = ".pilotage"

[limits]
# Jobs at once, in total and of each user; 0 means any number.
jobs = 0
user = 0

[keep]
# How long folders of ended jobs are kept.
done = "7d"
failed = "30d"
"""


def write(
    file: Path, site: str, by: SiteBroker | DialledHub, batch: str, admins: tuple[str, ...]
) -> Path:
    """Write a valid file, if there is none."""
    names = ("url", "ca", "token_file") if isinstance(by, DialledHub) else _BUS
    given = {name: getattr(by, name) for name in names}
    lines = [f"{name} = {_text(value)}" for name, value in given.items() if value]
    source = _FORM.format(
        site=_text(site), admins=f"[{', '.join(map(_text, admins))}]", carrier="\n".join(lines),
        table="hub" if isinstance(by, DialledHub) else "bus", batch=_text(batch),
    )  # fmt: skip
    parse(source, file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # A password in the address is private; without one other users may read the file.
        mode = 0o600 if urlsplit(by.url).password else 0o644
        place = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        message = f"{file} exists already"
        raise errors.Conflict(message, hint="change it with an editor") from None
    except OSError as error:
        raise errors.Unavailable(f"{file} cannot be written: {error.strerror}") from error
    with os.fdopen(place, "w", encoding="utf-8") as target:
        target.write(source)
    return file


def _text(value: str) -> str:
    """Write a text as TOML does, which is as JSON does where nothing odd is in it."""
    return json.dumps(value, ensure_ascii=True)
