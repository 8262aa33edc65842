"""Does a job fit into what is free, and the share that it takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.job.model import Resources
from pilotage.match import place
from pilotage.match.place import Offer

FEW = st.integers(0, 8)
NEEDS = st.builds(Resources, cpus=FEW, memory=st.none() | FEW, gpus=FEW)


@st.composite
def offers(draw: Any) -> Offer:
    whole = [draw(FEW) for _ in range(3)]
    # What was adopted after a restart may be more than there is: free can be below zero.
    free = [draw(st.integers(-3, one)) for one in whole]
    return Offer("local", whole[0], free[0], whole[1], free[1], whole[2], free[2])


@given(NEEDS, offers())
def test_giving_back_undoes_taking(needs, offer):
    assert place.carve(needs, place.carve(needs, offer), sign=1) == offer
    assert place.carve(needs, place.carve(needs, offer, sign=1)) == offer


@given(NEEDS, offers())
def test_what_fits_leaves_nothing_below_zero_and_takes_its_own_only(needs, offer):
    left = place.carve(needs, offer)
    taken = (
        offer.free_cpus - left.free_cpus,
        offer.free_memory - left.free_memory,
        offer.free_gpus - left.free_gpus,
    )
    assert taken == (needs.cpus, needs.memory or 0, needs.gpus)
    assert (left.site, left.cpus, left.memory, left.gpus) == (
        offer.site, offer.cpus, offer.memory, offer.gpus
    )  # fmt: skip
    if place.fits(needs, offer):
        assert min(left.free_cpus, left.free_memory, left.free_gpus) >= 0


@pytest.mark.parametrize(
    "needs, fits",
    [
        (Resources(cpus=4, memory=2**30), True),
        (Resources(cpus=5), False),
        (Resources(memory=2**30 + 1), False),
        (Resources(gpus=1), False),
    ],
)
def test_what_fits_is_no_more_than_is_free_of_anything(needs, fits):
    assert place.fits(needs, Offer("local", 8, 4, 2**33, 2**30)) is fits
