"""GPUs are lent: each payload sees its own, and nobody sees another's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.payload.starter.loop import Devices, NoDevice


def test_two_payloads_see_different_ones_and_a_third_has_to_wait():
    devices = Devices(["0", "1", "2"])
    first, second = devices.lend("1.1", 2), devices.lend("2.1", 1)
    assert (first["CUDA_VISIBLE_DEVICES"], second["CUDA_VISIBLE_DEVICES"]) == ("0,1", "2")
    with pytest.raises(NoDevice, match="1 GPUs are asked for and 0 are free"):
        devices.lend("3.1", 1)
    devices.take_back("1.1")
    assert devices.lend("3.1", 1)["HIP_VISIBLE_DEVICES"] == "0"


def test_who_asks_for_none_sees_none():
    assert Devices(["GPU-a"]).lend("1.1", 0)["CUDA_VISIBLE_DEVICES"] == ""


def test_where_there_are_none_nothing_is_said():
    assert Devices([]).lend("1.1", 0) == {}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=50))
def test_no_device_is_lent_twice(steps):
    devices = Devices(["0", "1", "2", "3"])
    held: dict[str, list[str]] = {}
    for number, count in steps:
        key = f"{number}.1"
        if key in held:
            devices.take_back(key)
            del held[key]
            continue
        try:
            shown = devices.lend(key, count)["CUDA_VISIBLE_DEVICES"]
        except NoDevice:
            assert count > 4 - sum(map(len, held.values()))
            continue
        held[key] = shown.split(",") if shown else []
        everyone = [one for some in held.values() for one in some]
        assert len(everyone) == len(set(everyone))
