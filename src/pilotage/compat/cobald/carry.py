"""Sites of TARDIS as ours: what has an equivalent, and what is lost on the way."""

from __future__ import annotations

import math
import re
from typing import Any, Literal

import msgspec

from pilotage.base import errors
from pilotage.batch.model import Defaults, SiteSettings
from pilotage.compat.cobald.reach import Reach, reach
from pilotage.compat.cobald.tardis import Machine, Place, Tardis, plain_name, pool_name
from pilotage.pool import files
from pilotage.pool.files import Outside, Pilot, Pool

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


def carry(place: Place) -> Moved:
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
    """Say what is lost of what is about no site."""
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
    told = {key: value for key, value in pilot.items() if value != getattr(Pilot(), key)}
    lines = [
        f"# Pool {name}: steered by `pilotage pool run`, as COBalD would.",
        f"site = {_toml(pool.site)}", f"maximum = {pool.maximum}", f"about = {_toml(pool.about)}",
        "", "[pilot]", *(f"{key} = {_toml(value)}" for key, value in told.items()),
        "", "[control]", 'kind = "outside"', "",
    ]  # fmt: skip
    return "\n".join(lines)


def _pool(site: str, place: Place, one: Machine, defaults: dict[str, str], lost: list[str]) -> Pool:
    cores = math.ceil(one.cores)
    maximum = UNBOUNDED if math.isinf(place.quota) else int(place.quota)
    if maximum == UNBOUNDED and math.isinf(place.quota):
        lost.append(f"no quota: a pool has a bound, {UNBOUNDED} cores is written")
    if one.disk is not None:
        lost.append("Disk: pilots tell how much their nodes have")
    time, queue = _settings(one, defaults, lost, slurm=place.adapter == "Slurm")
    made = Pool(
        site=site, maximum=max(maximum, cores), about=f"{one.name} of {place.name}, from TARDIS",
        pilot=Pilot(
            cpus=cores, memory=f"{one.memory:g}GiB" if one.memory else "", time=time, queue=queue
        ),
        control=Outside(),
    )  # fmt: skip
    files.check(pool_name(place.name, one.name), made)
    return made


def _settings(
    one: Machine, defaults: dict[str, str], lost: list[str], *, slurm: bool
) -> tuple[str, str]:
    """Read what the adapter is told of a machine type."""
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


def _site(place: Place) -> list[str]:
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
