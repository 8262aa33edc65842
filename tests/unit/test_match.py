"""Does a job fit an offer: the short answer, the long one, and the share that it takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.job.model import Resources
from pilotage.match import fit
from pilotage.match.model import Offer

FEW = st.integers(0, 8)
NEEDS = st.builds(Resources, cpus=FEW, memory=st.none() | FEW, gpus=FEW)


@st.composite
def offers(draw: Any) -> Offer:
    whole = [draw(FEW) for _ in range(3)]
    # What was adopted after a restart may be more than there is: free can be below zero.
    free = [draw(st.integers(-3, one)) for one in whole]
    return Offer("local", whole[0], free[0], whole[1], free[1], whole[2], free[2])


@given(NEEDS, offers())
def test_the_short_answer_is_the_long_one(needs, offer):
    assert fit.fits(needs, offer) == fit.fit(needs, offer).now


@given(NEEDS, offers())
def test_a_verdict_is_consistent_and_a_no_has_reasons(needs, offer):
    verdict = fit.fit(needs, offer)
    assert verdict.ever or not verdict.now
    assert bool(verdict.reasons) != verdict.now


@given(NEEDS, offers())
def test_ever_means_when_the_place_is_empty(needs, offer):
    empty = Offer("local", offer.cpus, offer.cpus, offer.memory, offer.memory,
                  offer.gpus, offer.gpus)  # fmt: skip
    assert fit.fit(needs, offer).ever == fit.fits(needs, empty)


@given(NEEDS, offers())
def test_giving_back_undoes_taking(needs, offer):
    assert fit.carve(needs, fit.carve(needs, offer), sign=1) == offer
    assert fit.carve(needs, fit.carve(needs, offer, sign=1)) == offer


@given(NEEDS, offers())
def test_what_fits_leaves_nothing_below_zero_and_takes_its_own_only(needs, offer):
    left = fit.carve(needs, offer)
    taken = (
        offer.free_cpus - left.free_cpus,
        offer.free_memory - left.free_memory,
        offer.free_gpus - left.free_gpus,
    )
    assert taken == (needs.cpus, needs.memory or 0, needs.gpus)
    assert (left.site, left.cpus, left.memory, left.gpus) == (
        offer.site, offer.cpus, offer.memory, offer.gpus
    )  # fmt: skip
    if fit.fits(needs, offer):
        assert min(left.free_cpus, left.free_memory, left.free_gpus) >= 0


@pytest.mark.parametrize(
    "needs, reasons",
    [
        (Resources(cpus=4), ()),
        (Resources(cpus=5), ("needs cpus = 5; local has 4 free now",)),
        (Resources(cpus=9), ("needs cpus = 9; local has 8 in all",)),
        (Resources(memory=2**32), ("needs memory = 4.0 GiB; local has 1.0 GiB free now",)),
        (Resources(gpus=1), ("needs gpus = 1; local has 0 in all",)),
        (
            Resources(cpus=5, gpus=1),
            ("needs gpus = 1; local has 0 in all", "needs cpus = 5; local has 4 free now"),
        ),
    ],
)
def test_reasons_name_both_values_and_the_worst_first(needs, reasons):
    assert fit.fit(needs, Offer("local", 8, 4, 2**33, 2**30)).reasons == reasons
