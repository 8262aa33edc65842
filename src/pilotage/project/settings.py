"""The settings of a project in `pilotage.toml`; unknown keys are errors."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import msgspec

from pilotage.base import errors, toml, units
from pilotage.bus.amqp.model import BrokerSettings
from pilotage.data.transfer import url
from pilotage.data.transfer.keys import Keys
from pilotage.event.file.model import Options
from pilotage.match.model import Offer
from pilotage.match.negotiate import Matcher
from pilotage.match.share import Shares, Slice
from pilotage.run.launch import Place

FILE = "pilotage.toml"
#: The settings of an agent, in the folder of the agent.
AGENT_FILE = "agent.toml"
STATE = ".pilotage"
#: Where the hub is found unless the settings say otherwise.
PORT = 8420

#: Settings that are durations or sizes.
_MEASURES: tuple[tuple[str, str, Callable[[str], float]], ...] = (
    ("events", "poll_interval", units.seconds),
    ("events", "settle", units.seconds),
    ("retention", "keep", units.seconds),
    ("http", "max_size", units.size),
    ("tcp", "max_size", units.size),
    ("site", "memory", units.size),
    ("pilots", "heartbeat", units.seconds),
    ("pilots", "lease", units.seconds),
    ("pilots", "idle", units.seconds),
    ("match", "patience", units.seconds),
    ("share", "half_life", units.seconds),
    ("flows", "ask", units.seconds),
    ("flows", "silence", units.seconds),
    ("flows", "keep", units.seconds),
    ("flows", "most", units.size),
)
#: Below the state of a project: data of workflows, and of jobs at sites with an agent.
FLOWS = "flows"
_MAY_BE_EMPTY = {("retention", "keep"), ("site", "memory"), ("pilots", "idle")}


class LocalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What this machine offers to jobs."""

    #: Cores; 0 means all that this process may use.
    cpus: int = 0
    #: Memory, such as `"16G"`; empty means all.
    memory: str = ""
    #: GPUs.
    gpus: int = 0
    #: When Pilotage stops, `"stop"` ends running jobs; `"linger"` lets them go on, to be adopted
    #: at the next start.
    on_exit: Literal["stop", "linger"] = "stop"


class Events(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the file source."""

    #: `"auto"` polls where inotify is blind (NFS, Lustre, GPFS, FUSE); `"poll"` and `"inotify"`
    #: force one of them.
    mode: Literal["auto", "poll", "inotify"] = "auto"
    #: Time between two looks in poll mode.
    poll_interval: str = "1s"
    #: How long a file must be unchanged where its close cannot be observed.
    settle: str = "500ms"


class RuleSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of rules."""

    #: Folder of rule files, below the project.
    folder: str = "rules"
    #: Whether a change in the folder takes effect at once.
    watch: bool = True


class Http(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Messages that are posted to the hub's port, at `/events/TOPIC`."""

    #: File with the token; empty means one made by Pilotage in its state folder.
    token_file: str = ""
    #: Largest body.
    max_size: str = "16M"


class Tcp(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The TCP sockets that rules listen on."""

    #: Address to listen on.
    host: str = "127.0.0.1"
    #: File with the token that a sender must give first; empty means none is asked for.
    token_file: str = ""
    #: Largest message.
    max_size: str = "16M"


class Retention(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long ended jobs, flows and events are kept."""

    #: Jobs and workflows that ended longer ago are forgotten with their directories; empty means
    #: never.
    keep: str = ""


class HubSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The port for pilots, programs and browsers."""

    #: Address to listen on.
    host: str = "127.0.0.1"
    #: Port; if this one is taken and no other was asked for, the next free one is used.
    port: int = PORT
    #: `"auto"` encrypts unless only this machine can connect; `"on"` always; `"off"` never, which
    #: only goes with an address of this machine.
    tls: Literal["auto", "on", "off"] = "auto"
    #: Certificate and key in PEM files; empty means a certificate that Pilotage makes for itself.
    tls_cert: str = ""
    tls_key: str = ""
    #: Further names and addresses by which this machine is reached, for that certificate.
    names: tuple[str, ...] = ()


class Pilots(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of pilots."""

    #: How often a pilot reports at least.
    heartbeat: str = "30s"
    #: After so long without a word what a pilot runs counts as lost and is queued again.
    lease: str = "5m"
    #: How long a pilot without work stays; empty means for ever.
    idle: str = "20m"
    #: Folder of scripts that every node must pass before it gets work, below the project.
    checks: str = "checks"
    #: Environment of all payloads that pilots run.
    env: dict[str, str] = {}
    #: What stands between payloads and everything else on pilots: `"auto"` takes the strongest
    #: that the node has.
    sandbox: Literal["auto", "none", "bubblewrap", "podman", "apptainer", "user"] = "auto"


class Match(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the matchmaker."""

    #: How long a large job finds no room before a place is kept free for it.
    patience: str = "5m"
    #: `"priority"` stops jobs of lower priority for one that has waited for so long.
    preempt: Literal["never", "priority"] = "never"


class Owner(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The share of a user or a group."""

    #: Its share beside the others.
    weight: float = 1.0
    #: Cores at once at most; 0 means any number.
    quota: int = 0


class Share(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Fair share among the owners of jobs."""

    #: After so long what was used counts half.
    half_life: str = "1d"
    #: Users by name, as `user` or `group/user`.
    user: dict[str, Owner] = {}
    #: Groups by name.
    group: dict[str, Owner] = {}


class BusSettings(BrokerSettings, frozen=True, kw_only=True):
    """The broker that reaches sites without a login; paths of files are below the project."""

    #: The topics that heartbeats of sites come by.
    beats: str = "heartbeat.**"
    #: The topics that jobs and chains of others come by, each with the user whose those are that
    #: carry no name which the broker has checked; empty means that they are refused.
    jobs: dict[str, str] = {}  # noqa: RUF012 - a struct
    #: Where the states of jobs are published that came as Balsam definitions.
    balsam_status: str = "balsam_job_status"


class FlowSite(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the steps of workflows store their data at a site that keeps it itself."""

    #: The folder as jobs at the site write it, such as `"file:///scratch/flows"`.
    data: str
    #: The same folder as others read it, such as `"sftp://dtn.example.org/scratch/flows"`.
    read: str
    #: Sites that can read it straight from there.
    readers: tuple[str, ...] = ()


class FlowSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Workflows across sites."""

    #: The transfer server: the URL of a folder that sites write to and read from. Without one,
    #: agents that dial this hub use its own port.
    data: str = ""
    #: The same folder as this hub names it, such as `"file:///srv/flows"`; empty means alike.
    here: str = ""
    #: Who may send workflows by the broker, as it knows them.
    users: tuple[str, ...] = ()
    #: The topics that workflows come by; the second is that of Argo's clients.
    topics: tuple[str, ...] = ("flow", "argo_job")
    #: The routing key that sites answer to; empty means each its own.
    reply: str = ""
    #: After so long without a word a site is asked how a job is.
    ask: str = "1m"
    #: After so long without a word a site is given up, where a step may run at another.
    silence: str = "10m"
    #: How long data of ended workflows stays.
    keep: str = "7d"
    #: Bytes that one attempt may leave at this hub's own port.
    most: str = "1T"
    #: Further hosts that this hub may fetch inputs from and send results to, such as
    #: `"data.example.org:443"`.
    hosts: tuple[str, ...] = ()
    #: Folders of this machine that it may use for the same, beside the project itself.
    folders: tuple[str, ...] = ()
    #: Hosts that may be notified of ends by HTTPS.
    webhooks: tuple[str, ...] = ()
    #: The program that takes a mail on its standard input; empty means no mail.
    mail: tuple[str, ...] = ()
    #: Sites that keep data themselves.
    site: dict[str, FlowSite] = {}
    #: By host that this hub fetches data from or sends it to: the files that open it.
    credentials: dict[str, Keys] = {}


class AppSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A registered application."""

    #: Program and first arguments.
    argv: tuple[str, ...]
    #: For people.
    about: str = ""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings of a project."""

    site: LocalSettings = LocalSettings()
    events: Events = Events()
    rules: RuleSettings = RuleSettings()
    http: Http = Http()
    tcp: Tcp = Tcp()
    retention: Retention = Retention()
    hub: HubSettings = HubSettings()
    pilots: Pilots = Pilots()
    match: Match = Match()
    share: Share = Share()
    bus: BusSettings = BusSettings()
    flows: FlowSettings = FlowSettings()
    #: Applications that recipes may name.
    app: dict[str, AppSettings] = {}


def read(root: Path) -> Settings:
    """Read the settings of a project; without a file all have their defaults."""
    file = root / FILE
    if not file.exists():
        return Settings()
    try:
        source = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise errors.ConfigError(f"{file}: {error}", hint="it is text in UTF-8") from error
    found = toml.decode(source, file)
    with toml.located(source, file, "`pilotage config show` lists all settings"):
        settings = toml.convert(found, Settings)
        _check(settings)
    return settings


def _check_places(flows: FlowSettings) -> None:
    """Refuse data locations that cannot be used."""
    places: dict[tuple[str, ...], str] = {("data",): flows.data, ("here",): flows.here}
    for name, one in flows.site.items():
        places |= {("site", name, "data"): one.data, ("site", name, "read"): one.read}
    for keys, address in places.items():
        with toml.at("flows", *keys):
            if address or keys[0] == "site":
                url.parse(address)
    if flows.here and not flows.data:
        message = "`flows.here` names the folder of `flows.data` for this hub, and there is none"
        raise errors.ConfigError(message, keys=("flows", "here"))


def _check(settings: Settings) -> None:
    if settings.bus.url and not settings.bus.url.startswith(("amqps://", "amqp://")):
        raise errors.ConfigError("`bus.url` begins with `amqps://`", keys=("bus", "url"))
    _check_places(settings.flows)
    for table, name, read in _MEASURES:
        written = getattr(getattr(settings, table), name)
        with toml.at(table, name):
            if written or (table, name) not in _MAY_BE_EMPTY:
                read(written)


def port_folder(state: Path) -> Path:
    """Return the folder of what agents read and write at this hub's own port."""
    return state / FLOWS / "port"


def at_home(address: str, state: Path) -> str:
    """Write the address of what lies at this hub's own port as that of a file here."""
    if not address.startswith(url.PORT):
        return address
    return f"file://{quote(os.fsencode(port_folder(state)))}/{address.removeprefix(url.PORT)}"


def offer(settings: Settings) -> Offer:
    """Return what this machine offers to jobs."""
    cpus = settings.site.cpus or len(os.sched_getaffinity(0))
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    memory = units.size(settings.site.memory) if settings.site.memory else pages
    gpus = settings.site.gpus
    return Offer("local", cpus, cpus, memory, memory, gpus, gpus)


def slices(share: Share) -> dict[str, Slice]:
    """Return what users and groups are entitled to, by name."""
    return {
        name: Slice(one.weight, one.quota or None)
        for name, one in (share.user | share.group).items()
    }


def matcher(settings: Settings) -> Matcher:
    """Return a matchmaker with the shares of owners."""
    share = settings.share
    shares = Shares(units.seconds(share.half_life), slices(share))
    return Matcher(shares, patience=units.seconds(settings.match.patience))


def options(settings: Settings, state: Path) -> Options:
    """Return how files are watched; our own state folder never is."""
    events = settings.events
    return Options(
        mode=events.mode,
        poll_interval=units.seconds(events.poll_interval),
        settle=units.seconds(events.settle),
        skip=frozenset({str(state)}),
    )


def place(settings: Settings, root: Path) -> Place:
    """Return where jobs run, and with which applications."""
    apps = {name: app.argv for name, app in settings.app.items()}
    return Place(str(root), apps)
