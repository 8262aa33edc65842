"""The six scenarios of the study: what changes, what fails, and how much is asked for."""

from __future__ import annotations

from msgspec.structs import replace

from .model import Failure, Kind, Load, Machine, Provider, Scenario

_KINDS = (
    Kind("1c/1GB", 1, 1, 0.4, 1.0),
    Kind("1c/2GB", 1, 2, 0.8, 1.0),
    Kind("8c/16GB", 8, 16, 1.5, 0.8),
    Kind("1c/6GB", 1, 6, 1.2, 0.9),
    Kind("8c/40GB", 8, 40, 3.0, 0.7),
)
_PROVIDERS = (
    Provider("hpc-a", 800, 0.35, 0.75, 0.8),
    Provider("hpc-b", 600, 0.35, 2.0, 0.9),
    Provider("cloud-c", 240, 0.0, 0.1, 0.4),
)
_MACHINES = (
    Machine("a-thin", "hpc-a", 16, 32, 24.0, 5),
    Machine("a-fat", "hpc-a", 16, 96, 24.0, 5),
    Machine("b", "hpc-b", 8, 24, 24.0, 5),
    Machine("c-thin", "cloud-c", 8, 16, 0.0, 4),
    Machine("c-fat", "cloud-c", 8, 56, 0.0, 4),
)
_SHIFTING = Scenario(name="shifting", providers=_PROVIDERS, machines=_MACHINES, kinds=_KINDS)


def _slow(one: Provider) -> Provider:
    return replace(one, delay=3 * one.delay)


SCENARIOS: dict[str, Scenario] = {
    one.name: one
    for one in (
        _SHIFTING,
        replace(
            _SHIFTING,
            name="bursty",
            load=Load(phase=6.0, idle=45.0, low=200.0, high=1000.0, batch=36.0),
        ),
        replace(_SHIFTING, name="slowq", providers=tuple(_slow(one) for one in _PROVIDERS)),
        replace(_SHIFTING, name="blackhole", failures=(Failure("hpc-a", 48.0, 72.0),)),
        replace(
            _SHIFTING,
            name="steady",
            load=Load(phase=240.0, idle=0.0, low=820.0, high=821.0, even=40.0),
        ),
        replace(
            _SHIFTING,
            name="overload",
            load=Load(phase=18.0, idle=0.0, low=1200.0, high=2100.0),
        ),
    )
}
