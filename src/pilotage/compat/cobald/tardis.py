"""Read TARDIS configurations: sites and machine types become a tree of pools."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pilotage.base import errors
from pilotage.compat.cobald import document
from pilotage.compat.cobald.document import Element, wrong
from pilotage.pool.composite import Composite, weighted
from pilotage.pool.decorator import Logger, Standardiser
from pilotage.pool.model import Target

#: The sections that are about no site.
_GENERAL = ("Sites", "BatchSystem", "Plugins", "Services")
_LONGEST = 40
_KINDS = ("MachineTypes", "MachineTypeConfiguration", "MachineMetaData")


class Machine(msgspec.Struct, frozen=True):
    """A machine type of a site."""

    name: str
    cores: float
    #: In GB, as TARDIS has it; nothing if it is not said.
    memory: float | None
    disk: float | None
    #: Settings of its adapter.
    settings: dict[str, Any]


class TardisSite(msgspec.Struct, frozen=True):
    """A site."""

    name: str
    adapter: str
    #: In cores; infinite if there is none.
    quota: float
    machines: tuple[Machine, ...]
    #: What reaches its batch system, such as `!TardisSSHExecutor`.
    executor: Element | None
    #: Seconds between two looks at a drone, and how long one is kept; nothing if it is not said.
    heartbeat: float | None = None
    lifetime: float | None = None
    #: Further settings of its adapter.
    settings: dict[str, Any] = {}


class Tardis(msgspec.Struct, frozen=True):
    """What a configuration of TARDIS says."""

    places: tuple[TardisSite, ...]
    #: What else is in it, by section.
    general: dict[str, Any]


def load(file: Path) -> Tardis:
    """Read a file of TARDIS, or the section of one of COBalD."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.ConfigError(f"{file} cannot be read: {error}") from None
    top = document.read(text, str(file))
    section = top.get("tardis", top) if "Sites" not in top else top
    return read(section, str(file))


def read(top: Any, file: str = "") -> Tardis:  # noqa: ANN401 - from a file
    """Read what is below `tardis`, or a file of its own."""
    sites = top.get("Sites") if isinstance(top, dict) else None
    if not isinstance(sites, list) or not sites:
        hint = "TARDIS has them in a file of its own, or below `tardis`"
        raise wrong(file, 0, "there are no `Sites`, which is a list of sites", hint=hint)
    places = tuple([_place(one, top, file) for one in sites])
    _apart([plain_name(one.name) for one in places], "two sites would be", file)
    names = [pool_name(one.name, kind.name) for one in places for kind in one.machines]
    _apart(names, "two machine types would be the pool", file)
    own = {one.name for one in places}
    general = {key: value for key, value in top.items() if key not in {"Sites", *own}}
    return Tardis(places, general)


def tree(tardis: Tardis, leaf: Callable[[str], Target]) -> Composite:
    """Join pools as TARDIS does: machine types to sites with a quota, and sites to one."""
    sites = []
    for place in tardis.places:
        kinds = [
            Logger(name=f"{place.name}_{one.name}") >> leaf(pool_name(place.name, one.name))
            for one in place.machines
        ]
        site = weighted(*kinds, weight="utilisation")
        sites.append(Standardiser(maximum=place.quota) >> site)
    return weighted(*sites, weight="utilisation")


def pool_name(site: str, machine: str) -> str:
    """Return the name of the pool of a machine type."""
    return plain_name(f"{site}_{machine}")


def plain_name(text: str) -> str:
    """Write a name with letters, digits, `-` and `_` only."""
    found = re.sub(r"[^A-Za-z0-9_-]", "_", text)[:_LONGEST]
    return found if found[:1].isalpha() and found.isascii() else f"p{found}"[:_LONGEST]


def _apart(names: list[str], what: str, file: str) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise wrong(file, 0, f"{what} `{twice[0]}`")


def _place(site: Any, top: Mapping[str, Any], file: str) -> TardisSite:  # noqa: ANN401
    if not isinstance(site, dict) or not {"name", "adapter", "quota"} <= site.keys():
        raise wrong(file, 0, "each of `Sites` has `name`, `adapter` and `quota`")
    name, quota = str(site["name"]), _number(site["quota"], "quota", file)
    if quota == 0 or name in _GENERAL:
        what = "its quota is 0" if quota == 0 else "that is the name of a section"
        raise wrong(file, 0, f"site {name}: {what}")
    own = top.get(name)
    if not isinstance(own, dict):
        raise wrong(file, 0, f"there is no section `{name}`, which says what the site has")
    executor = own.get("executor")
    return TardisSite(
        name, str(site["adapter"]), math.inf if quota < 0 else quota,
        tuple([_machine(name, one, own, file) for one in _types(name, own, file)]),
        executor if isinstance(executor, Element) else None,
        _some(site, "drone_heartbeat_interval", file), _some(site, "drone_minimum_lifetime", file),
        {key: value for key, value in own.items() if key not in {*_KINDS, "executor"}},
    )  # fmt: skip


def _types(name: str, own: Mapping[str, Any], file: str) -> list[str]:
    listed = own.get("MachineTypes")
    if not isinstance(listed, list) or not listed:
        raise wrong(file, 0, f"site {name} has no `MachineTypes`")
    return [str(one) for one in listed]


def _machine(site: str, name: str, own: Mapping[str, Any], file: str) -> Machine:
    facts, settings = (
        found.get(name) if isinstance(found, dict) else None
        for found in (own.get("MachineMetaData"), own.get("MachineTypeConfiguration"))
    )
    if not isinstance(facts, dict) or "Cores" not in facts:
        raise wrong(file, 0, f"machine type {name} of {site} has no `Cores` in `MachineMetaData`")
    cores = _number(facts["Cores"], "Cores", file)
    if not 0 < cores < math.inf:
        raise wrong(file, 0, f"machine type {name} of {site} has {cores:g} cores")
    return Machine(
        name, cores, _some(facts, "Memory", file), _some(facts, "Disk", file),
        dict(settings) if isinstance(settings, dict) else {},
    )  # fmt: skip


def _some(facts: Mapping[str, Any], key: str, file: str) -> float | None:
    if facts.get(key) is None:
        return None
    found = _number(facts[key], key, file)
    if math.isinf(found):
        raise wrong(file, 0, f"`{key}` is no number: {found:g}")
    return found


def _number(value: Any, key: str, file: str) -> float:  # noqa: ANN401
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if math.isnan(found):
        raise wrong(file, 0, f"`{key}` is no number: {value!r}")
    return found
