"""Fair share: half-lives are exact, time alone changes no order, shares meet their weights."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.match import share
from pilotage.match.share import Shares, Slice, UsageRow, group_of

DAY = 86400.0
NOW = 1.8e9
OWNERS = st.sampled_from(["ann", "bob", "cms/ann", "cms/eve", "atlas/joe"])
CHARGES = st.lists(
    st.tuples(OWNERS, st.floats(1e-3, 1e7), st.floats(0, 400 * DAY)), min_size=1, max_size=30
)


def charged(charges: list[tuple[str, float, float]], half_life: float = DAY) -> Shares:
    shares = Shares(half_life, {"cms": Slice(weight=2.0), "ann": Slice(weight=3.0)})
    for owner, amount, age in sorted(charges, key=lambda one: -one[2]):
        shares.charge(owner, amount, NOW - age)
    return shares


@given(CHARGES, st.floats(0, 3000 * DAY))
def test_time_alone_changes_no_order(charges, later):
    shares = charged(charges)
    owners = sorted(shares.owners())
    before = shares.order(owners)
    recent = [owner for owner in before if shares.usage(owner, NOW) > 0]
    # A charge of nothing makes it rescale when the time has come.
    shares.charge("else/nobody", 0.0, NOW + later)
    after = shares.order(owners)
    left = [owner for owner in after if owner in recent]
    if later < 500 * DAY:
        assert left == recent


@given(CHARGES)
def test_usage_is_the_sum_of_charges_each_halved_by_its_age(charges):
    shares = charged(charges)
    for owner in shares.owners():
        own = [(amount, age) for one, amount, age in charges if one == owner]
        expected = math.fsum(amount * 0.5 ** (age / DAY) for amount, age in own)
        assert shares.usage(owner, NOW) == pytest.approx(expected, rel=1e-6, abs=1e-60)
        assert shares.total(owner) == pytest.approx(math.fsum(amount for amount, _ in own))


@given(CHARGES)
def test_a_group_has_used_what_its_members_have(charges):
    shares = charged(charges)
    members = [owner for owner in shares.owners() if group_of(owner) == "cms"]
    whole = math.fsum(shares.usage(owner, NOW) for owner in members)
    assert shares.usage("cms", NOW) == pytest.approx(whole, rel=1e-9, abs=1e-60)


def test_usage_halves_in_a_half_life():
    shares = Shares(DAY)
    shares.charge("ann", 1000.0, NOW)
    assert shares.usage("ann", NOW) == pytest.approx(1000.0)
    assert shares.usage("ann", NOW + DAY) == pytest.approx(500.0)
    assert shares.usage("ann", NOW + 10 * DAY) == pytest.approx(1000.0 / 1024)


@pytest.mark.parametrize("hours, cores", [(6, 15.91), (12, 29.29), (24, 50.0), (48, 75.0)])
@pytest.mark.parametrize("pieces", [1, 7, 1000])
def test_cores_held_from_zero_count_as_in_htcondor(hours, cores, pieces):
    shares = Shares(DAY)
    span = hours * 3600 / pieces
    for piece in range(1, pieces + 1):
        shares.charge("ann", 100 * span, NOW + piece * span, span)
    assert shares.cores("ann", NOW + hours * 3600) == pytest.approx(cores, abs=0.005)


def test_what_was_charged_in_advance_can_be_given_back():
    shares = Shares(DAY)
    shares.charge("cms/ann", 3600.0, NOW)
    shares.charge("cms/ann", -3000.0, NOW)
    assert shares.usage("cms/ann", NOW) == pytest.approx(600.0)
    assert shares.usage("cms", NOW) == pytest.approx(600.0)
    shares.charge("cms/ann", -3000.0, NOW)
    assert shares.usage("cms/ann", NOW) == shares.usage("cms", NOW) == shares.total("cms/ann") == 0


def test_the_group_goes_before_the_user():
    shares = Shares(DAY, {"cms": Slice(weight=10.0)})
    shares.charge("cms/ann", 500.0, NOW)
    shares.charge("cms/eve", 400.0, NOW)
    shares.charge("bob", 100.0, NOW)
    assert shares.order(["bob", "cms/ann", "cms/eve", "new"]) == [
        "new",
        "cms/eve",
        "cms/ann",
        "bob",
    ]


def jain(values: list[float]) -> float:
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values))


def test_two_users_and_a_group_come_to_their_weights():
    slices = {"ann": Slice(weight=1.0), "bob": Slice(weight=3.0), "cms": Slice(weight=4.0)}
    shares = Shares(DAY, slices)
    # Ann was alone for a day.
    shares.charge("ann", 64 * DAY, NOW, DAY)
    owners = ["ann", "bob", "cms/eve", "cms/joe"]
    now = NOW
    for _ in range(40_000):
        now += 60.0
        shares.charge(min(owners, key=shares.key), 64 * 60.0, now, 60.0)
    whole = {"ann": 1.0, "bob": 3.0, "cms": 4.0}
    assert jain([shares.usage(name, now) / weight for name, weight in whole.items()]) > 0.999
    assert jain([shares.usage("cms/eve", now), shares.usage("cms/joe", now)]) > 0.999


def test_quotas_bound_the_user_and_the_group():
    slices = {"ann": Slice(quota=8), "cms": Slice(quota=100), "cms/eve": Slice(quota=50)}
    shares = Shares(DAY, slices)
    assert shares.room("bob", {"bob": 1000}) is None
    assert shares.room("ann", {"ann": 5}) == 3
    assert shares.room("ann", {"ann": 50}) == 0
    assert shares.room("cms/eve", {"cms/eve": 10}) == 40
    assert shares.room("cms/eve", {"cms/eve": 10, "cms/joe": 85, "ann": 99}) == 5
    assert shares.room("cms/joe", {"cms/eve": 10, "cms/joe": 20}) == 70
    assert shares.room("cms/joe", {"cms/": 99}) == 1


@given(CHARGES, st.floats(0, 10 * DAY))
def test_what_is_loaded_is_what_was_dumped(charges, later):
    shares = charged(charges)
    again = Shares(DAY)
    again.load(shares.dump(NOW))
    for owner in shares.owners():
        expected = shares.usage(owner, NOW + later)
        assert again.usage(owner, NOW + later) == pytest.approx(expected, rel=1e-6, abs=1e-60)
        assert again.total(owner) == shares.total(owner)


def test_the_half_life_may_change_between_two_runs():
    shares = Shares(DAY)
    shares.charge("ann", 1000.0, NOW)
    again = Shares(2 * DAY)
    again.load(shares.dump(NOW, ["ann"]))
    assert again.usage("ann", NOW + 2 * DAY) == pytest.approx(500.0)


def test_rows_of_any_age_can_be_loaded():
    shares = Shares(60.0)
    shares.load(
        [
            UsageRow("ann", 5.0, NOW, 5.0),
            UsageRow("bob", 5.0, 0.0, 7.0),
            UsageRow("eve", 5.0, NOW * 2, 1),
        ]
    )
    assert shares.usage("bob", NOW) == 0.0
    assert shares.total("bob") == 7.0
    assert shares.usage("eve", NOW * 2) == pytest.approx(5.0)


@pytest.mark.parametrize("half_life", [0.0, -1.0, math.inf, math.nan])
def test_a_half_life_is_above_zero(half_life):
    with pytest.raises(errors.ConfigError, match="half-life"):
        Shares(half_life)


def test_a_weight_is_above_zero():
    with pytest.raises(errors.ConfigError, match="weight of `ann`"):
        Shares(DAY, {"ann": Slice(weight=0.0)})


def test_a_group_is_due_its_weight_however_many_are_in_it():
    weights = {"lab": 3.0, "lab/ann": 1.0, "lab/bob": 2.0, "cid": 1.0}
    found = share.parts_of(weights, ["cid", "lab/ann", "lab/bob"])
    assert found == pytest.approx({"cid": 0.25, "lab/ann": 0.25, "lab/bob": 0.5})
    assert share.parts_of({}, []) == {}


def test_the_table_has_all_who_used_something_wait_or_are_configured():
    slices = {"lab": Slice(3.0), "lab/bob": Slice(2.0, 8), "dan": Slice()}
    rows = [("lab/ann", 8.0, NOW - 60.0, 20.0), ("cid", 1.0, NOW + 5.0, 1.0)]
    counts = [("lab/bob", "running", 2), ("lab/bob", "queued", 5)]
    found = share.table(rows, counts, slices, ["dan"], 60.0, NOW)
    assert [one.owner for one in found] == ["cid", "dan", "lab/ann", "lab/bob"]
    usage = {one.owner: (one.usage, one.total, one.running, one.queued) for one in found}
    assert usage["lab/ann"] == (4.0, 20.0, 0, 0), "half of it after one half-life"
    assert usage["cid"] == (1.0, 1.0, 0, 0), "a clock that was ahead does not add usage"
    assert usage["lab/bob"] == (0.0, 0.0, 2, 5)
    assert [one.due for one in found] == pytest.approx([0.2, 0.2, 0.2, 0.4])
    assert found[-1].quota == 8
