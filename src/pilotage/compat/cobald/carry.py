"""Convert sites of TARDIS to ours, and report what has no equivalent."""

from __future__ import annotations

import math
import re
from typing import Any, Literal

import msgspec

from pilotage.base import errors
from pilotage.batch.model import Defaults, SiteSettings
from pilotage.batch.pilot_request import PilotRequest
from pilotage.compat.cobald.document import Element
from pilotage.compat.cobald.tardis import Machine, Tardis, TardisSite, plain_name, pool_name
from pilotage.pool import files
from pilotage.pool.files import Outside, Pool

#: Options of asyncssh, and what they are called in a settings file of `ssh`.
_WORDS = {
    "host": "HostName",
    "username": "User",
    "port": "Port",
    "client_keys": "IdentityFile",
    "client_certs": "CertificateFile",
    "known_hosts": "UserKnownHostsFile",
    "connect_timeout": "ConnectTimeout",
    "keepalive_interval": "ServerAliveInterval",
    "tunnel": "ProxyJump",
    "config": "Include",
}
_PLAIN = re.compile(r'[^"\x00-\x1f\x7f]+')
#: Names get into a command line that `ssh` hands to a shell to reach a jump host.
_NAME = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.:@,+\[\]-]*")
_NAMES = {"host", "username", "tunnel"}
_NO_CODES = "codes are not made up for you: `pilotage site login {site}` asks for them"
_WHY = {
    "password": "secrets are not copied: use a key, an agent or `pilotage site login {site}`",
    "passphrase": "secrets are not copied: use an agent",
    "mfa_config": _NO_CODES,
    "proxy_command": "write it into the settings file yourself, if you trust it",
    "wrapper": "only a program with its arguments is run, never a shell command",
}
_SSH = ("SSHExecutor", "DupingSSHExecutor")
_SHELL = "ShellExecutor"


class Reach(msgspec.Struct, frozen=True):
    """How to get to a site."""

    #: Whether it is on another machine.
    far: bool = False
    #: The text of a settings file of `ssh`.
    settings: str = ""
    #: What could not be carried over.
    lost: tuple[str, ...] = ()


def reach(site: str, executor: Element | None) -> Reach:
    """Write down how to get to a site."""
    if executor is None:
        return Reach()
    kind = executor.kind.lstrip("!").rpartition(".")[2].removeprefix("Tardis")
    if kind == _SHELL:
        return Reach()
    if kind not in _SSH or executor.args:
        return Reach(lost=(f"executor `{executor.kind}` is not known here",))
    lines, lost = [f"Host {site}"], []
    for key, value in executor.keys.items():
        found = _lines(key, value)
        if key == "known_hosts" and value is None:
            lost.append("keys of hosts are checked always: log in once, or add them to known_hosts")
        elif found:
            lines += found
        else:
            why = _WHY.get(key, "`ssh` has its own way").format(site=site)
            lost.append(f"executor option `{key}`: {why}")
    return Reach(far=True, settings="\n".join([*lines, ""]), lost=tuple(lost))


def _lines(key: str, value: Any) -> list[str]:  # noqa: ANN401 - from a file
    word = _WORDS.get(key)
    values = value if isinstance(value, list) else [value]
    if word is None or not values:
        return []
    texts = [str(one) for one in values if isinstance(one, str | int | float)]
    form = _NAME if key in _NAMES else _PLAIN
    if len(texts) < len(values) or not all(form.fullmatch(one) for one in texts):
        return []
    if key == "tunnel":
        # `ssh` takes quotes around this one for a part of the name.
        return [f"    {word} {one}" for one in texts]
    return [f'    {word} "{one}"' for one in texts]


#: TARDIS's adapters, and what runs pilots here.
ADAPTERS: dict[str, Literal["slurm", "htcondor", "local"]] = {
    "Slurm": "slurm", "HTCondor": "htcondor", "FakeSite": "local",
}  # fmt: skip
#: What else TARDIS has, and what can be done.
_OTHERS = {
    "Moab": "if Moab runs Torque or Slurm, describe that: `pilotage site add`",
    "OpenStack": "start `pilotage pilot run` in the image of the machines",
    "CloudStack": "start `pilotage pilot run` in the image of the machines",
    "Kubernetes": "start `pilotage pilot run` in the container",
}
#: Cores where there is no quota: a pool has a bound.
UNBOUNDED = 1000
_SLURM = {
    "account": "account", "A": "account", "qos": "qos", "q": "qos", "constraint": "constraint",
    "C": "constraint", "reservation": "reservation",
}  # fmt: skip
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_DRONE = {
    "StartupCommand": "the batch job starts a pilot of ours",
    "jdl": "the batch job starts a pilot of ours; its queue and group are settings of the site",
}
_GENERAL = {
    "BatchSystem": "pilots take jobs of the hub, which sees how well they are used",
    "SqliteRegistry": "the hub keeps pilots in its store; drones that run now are not taken over",
    "PrometheusMonitoring": "the hub has /metrics",
    "Services": "the hub has an API and a page",
}


class Moved(msgspec.Struct, frozen=True):
    """A site of TARDIS as one of ours."""

    name: str
    site: SiteSettings
    reach: Reach
    pools: dict[str, Pool]
    #: What could not be carried over.
    lost: tuple[str, ...]


def carry(place: TardisSite) -> Moved:
    """Make a site and its pools of one of TARDIS's; refuse what has no equivalent."""
    if place.adapter not in ADAPTERS:
        hint = _OTHERS.get(place.adapter, f"there are {', '.join(ADAPTERS)}")
        message = f"site {place.name}: nothing here is like the adapter `{place.adapter}`"
        raise errors.UsageError(message, hint=hint)
    name = plain_name(place.name)
    # That is this machine's own name here.
    name = "tardis_local" if name == "local" else name
    way, defaults, lost = reach(name, place.executor), dict[str, str](), list[str]()
    pools = {
        pool_name(place.name, one.name): _pool(name, place, one, defaults, lost)
        for one in place.machines
    }
    lost += _site(place)
    site = SiteSettings(
        batch=ADAPTERS[place.adapter],
        host=name if way.far else "", defaults=Defaults(**defaults),
        poll=f"{place.heartbeat:g}s" if place.heartbeat else SiteSettings(batch="local").poll,
    )  # fmt: skip
    return Moved(name, site, way, pools, (*way.lost, *dict.fromkeys(lost)))


def general(tardis: Tardis) -> list[str]:
    """Return what is lost of what is about no site."""
    found = []
    for key, value in tardis.general.items():
        if key == "Plugins" and isinstance(value, dict):
            found += [
                f"plug-in {one}: {_GENERAL.get(one, 'there is none like it; see /metrics')}"
                for one in value
            ]
        else:
            found.append(f"{key}: {_GENERAL.get(key, 'nothing here reads it')}")
    return found


def text(name: str, pool: Pool) -> str:
    """Write a pool as TOML, as far as it says anything."""
    pilot = msgspec.to_builtins(pool.pilot)
    told = {key: value for key, value in pilot.items() if value != getattr(PilotRequest(), key)}
    lines = [
        f"# Pool {name}: controlled by `pilotage pool run`, as by COBalD.",
        f"site = {_toml(pool.site)}", f"maximum = {pool.maximum}", f"about = {_toml(pool.about)}",
        "", "[pilot]", *(f"{key} = {_toml(value)}" for key, value in told.items()),
        "", "[control]", 'kind = "outside"', "",
    ]  # fmt: skip
    return "\n".join(lines)


def _pool(
    site: str, place: TardisSite, one: Machine, defaults: dict[str, str], lost: list[str]
) -> Pool:
    cores = math.ceil(one.cores)
    maximum = UNBOUNDED if math.isinf(place.quota) else int(place.quota)
    if maximum == UNBOUNDED and math.isinf(place.quota):
        lost.append(f"no quota: a pool has a bound, {UNBOUNDED} cores is written")
    if one.disk is not None:
        lost.append("Disk: pilots report the disks of their nodes")
    time, queue = _settings(one, defaults, lost, slurm=place.adapter == "Slurm")
    made = Pool(
        site=site, maximum=max(maximum, cores), about=f"{one.name} of {place.name}, from TARDIS",
        pilot=PilotRequest(
            cpus=cores, memory=f"{one.memory:g}GiB" if one.memory else "", time=time, queue=queue
        ),
        control=Outside(),
    )  # fmt: skip
    files.check(pool_name(place.name, one.name), made)
    return made


def _settings(
    one: Machine, defaults: dict[str, str], lost: list[str], *, slurm: bool
) -> tuple[str, str]:
    """Read the adapter's settings of a machine type."""
    time = queue = ""
    for key, value in one.settings.items():
        if key == "Walltime" and (found := walltime(str(value))):
            time = f"{found}s"
        elif key == "Partition":
            queue = str(value)
        elif key == "SubmitOptions" and isinstance(value, dict) and slurm:
            _options(value, defaults, lost)
        else:
            lost.append(f"{key}: {_DRONE.get(key, 'there is no such setting')}")
    return time, queue


def _options(value: dict[str, Any], defaults: dict[str, str], lost: list[str]) -> None:
    given: dict[str, Any] = {}
    for key, one in value.items():
        given |= one if key in {"short", "long"} and isinstance(one, dict) else {key: one}
    for key, one in given.items():
        ours = _SLURM.get(key)
        if ours and defaults.get(ours, str(one)) == str(one):
            defaults[ours] = str(one)
        elif ours:
            lost.append(f"SubmitOptions {key}={one}: the site has {defaults[ours]} for all")
        else:
            lost.append(f"SubmitOptions {key}={one}: there is no such setting")


def _site(place: TardisSite) -> list[str]:
    lost = []
    if place.adapter == "FakeSite":
        lost.append("FakeSite: pilots are real, and run on this machine")
    if place.lifetime:
        lost.append("drone_minimum_lifetime: a pilot stays until its `time` is over or it idles")
    return [*lost, *(f"{key}: nothing here needs it" for key in place.settings)]


def walltime(text: str) -> int:
    """Read Slurm's times in seconds: a bare number is minutes; 0 if it is none."""
    found = _CLOCK.fullmatch(text.strip())
    if not found:
        return 0
    days, *rest = (int(part or 0) for part in found.groups())
    first, second, third = rest
    if found[1]:
        return days * 86400 + first * 3600 + second * 60 + third
    if found[4]:
        return first * 3600 + second * 60 + third
    return first * 60 + second


def _toml(value: object) -> str:
    """Write a value; TOML's texts and numbers are JSON's."""
    return msgspec.json.encode(value).decode()
