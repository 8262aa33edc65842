"""What is due to owners: first among the groups, then in the group."""

from __future__ import annotations

import pytest

from pilotage.hub.api.pilots import share_of


def test_a_group_is_due_its_weight_however_many_are_in_it():
    weights = {"lab": 3.0, "lab/ann": 1.0, "lab/bob": 2.0, "cid": 1.0}
    found = share_of(weights, ["cid", "lab/ann", "lab/bob"])
    assert found == pytest.approx({"cid": 0.25, "lab/ann": 0.25, "lab/bob": 0.5})


def test_nobody_is_due_nothing():
    assert share_of({}, []) == {}
