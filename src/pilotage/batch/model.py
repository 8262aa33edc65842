"""Settings of a site: the file that describes it, checked strictly."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import msgspec

from pilotage.base import errors, toml, units
from pilotage.batch.system import known, plugin

#: A value of `batch` in earlier versions, for a site with a factory of pilots.
_FACTORY = "factory"
#: What sites and hubs may be called.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
#: Options that would let a job be run twice, hide it from us, or reach outside what it is.
_NEVER = (
    "--requeue", "--wrap", "--job-name", "--array", "--output", "--error", "--chdir", "--uid",
    "-J", "-a", "-o", "-e", "-D", "-N", "-t",
)  # fmt: skip


class Defaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Requests to the batch system for jobs and pilots that do not set their own."""

    #: Queue or partition.
    queue: str = ""
    #: What is charged.
    account: str = ""
    #: Quality of service.
    qos: str = ""
    #: What nodes must have, in the batch system's own words.
    constraint: str = ""
    #: A reservation of nodes.
    reservation: str = ""
    #: Wall time, such as `"1h"`; empty means the queue's own.
    time: str = ""


class SiteSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A file `sites/NAME.toml`."""

    #: What runs jobs there: a name of ours, of a plug-in, or `package.module:Class` of one.
    batch: str
    #: The host to log in to, as `ssh` knows it; empty means this machine.
    host: str = ""
    #: An `ssh` configuration file; empty means the user's own.
    ssh_config: str = ""
    #: Folder at the site that login and worker nodes share; relative to the home directory.
    folder: str = ".pilotage"
    #: Python 3.9 or newer, at the login node and at worker nodes.
    python: str = "python3"
    #: Folders to look for the batch system's programs in, before the usual ones.
    path: tuple[str, ...] = ()
    #: Environment of the batch system's programs.
    env: dict[str, str] = {}
    #: For people.
    about: str = ""
    #: Jobs that may be at the site at once, queued or running, beside pilots.
    jobs: int = 1000
    #: Cores that pilots may have there at once, over all pools; 0 means any number.
    quota: int = 0
    #: Cores that one job may have, over all nodes; 0 means any number.
    cpus: int = 0
    #: Memory of a node, such as `"128G"`; empty means any amount.
    memory: str = ""
    #: GPUs of a node.
    gpus: int = 0
    #: Jobs that go into one array, at most.
    array: int = 500
    #: How parallel jobs are started.
    launcher: Literal["none", "srun", "mpirun"] = "none"
    #: What runs the images of jobs there.
    container: Literal["podman", "apptainer"] = "podman"
    #: Options of the batch system that jobs may use in `extra`, such as `"--exclusive"`.
    allow: tuple[str, ...] = ()
    #: Commands of the batch system that may run at once, and in a second.
    at_once: int = 4
    per_second: float = 50.0
    #: Time between two listings while something is there.
    poll: str = "10s"
    #: Time between two listings without a submission in doubt before it is resubmitted.
    settle: str = "30s"
    #: Bytes of inputs that are kept at the site, such as `"100G"`; empty means without bound.
    cache: str = ""
    #: Folder at the site for what pilots fetch: those that see the same one share it; empty means
    #: where each works.
    cache_folder: str = ""
    #: Folders at the site that payloads of pilots may read, and those that they may write.
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    #: How pilots reach the hub: by themselves, or by the connection of the hub to the login node.
    link: Literal["direct", "relay"] = "relay"
    #: The name by which worker nodes reach the login node; empty means the name it has itself.
    login: str = ""
    defaults: Defaults = Defaults()
    #: Settings of a plug-in for `batch`.
    plugin: dict[str, str | int | float | bool] = {}


#: What is read as a measure, and whether it must be there.
_MEASURES: tuple[tuple[str, Callable[[str], float], bool], ...] = (
    ("poll", units.seconds, True), ("settle", units.seconds, True),
    ("memory", units.size, False), ("cache", units.size, False),
)  # fmt: skip


def check(name: str, site: SiteSettings) -> None:
    """Raise `ConfigError` for what cannot be."""
    if not NAME.fullmatch(name) or name == "local":
        message = f"{name!r} cannot be the name of a site"
        raise errors.ConfigError(message, hint="letters, digits, `-` and `_`; not `local`")
    if site.batch == _FACTORY:
        message = '`batch` cannot be "factory": a site that gives pilots has an agent'
        hint = (
            f"remove this file, make a token with `pilotage token new agent --site {name}`, and "
            "have the site run `pilotage agent run` with it"
        )
        raise errors.ConfigError(message, hint=hint, keys=("batch",))
    check_batch(site)
    for one in site.allow:
        bare = one.partition("=")[0]
        if not bare.startswith("-") or bare in _NEVER:
            message = f"site {name}: `allow` cannot have {one!r}"
            raise errors.ConfigError(message, keys=("allow",))
    for key, read, needed in _MEASURES:
        with toml.at(key):
            if needed or getattr(site, key):
                read(getattr(site, key))
    if site.defaults.time:
        with toml.at("defaults", "time"):
            units.seconds(site.defaults.time)
    if site.host.startswith("-"):
        raise errors.ConfigError(f"site {name}: {site.host!r} is not a host name", keys=("host",))


def check_batch(site: SiteSettings) -> None:
    """Raise `ConfigError` for a batch system that is neither ours nor a plug-in."""
    if site.batch in known.OURS:
        if site.plugin:
            message = f"`plugin` cannot be there: {site.batch} is none"
            raise errors.ConfigError(message, keys=("plugin",))
    elif not plugin.is_name(site.batch):
        hint = f"it may be {', '.join(known.OURS)}, a plug-in, or `package.module:Class`"
        raise errors.ConfigError(f"`batch` cannot be {site.batch!r}", hint=hint, keys=("batch",))
    elif ":" not in site.batch and site.batch not in (there := plugin.names()):
        hint = f"it may be {', '.join((*known.OURS, *there))}, or `package.module:Class`"
        message = f"`batch` cannot be {site.batch!r}: there is none"
        raise errors.ConfigError(message, hint=hint, keys=("batch",))
