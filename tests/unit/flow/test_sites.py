"""Which site a task goes to."""

from __future__ import annotations

import pytest

from pilotage.flow.sites import CandidateSite, Choice, choose

KNOWN = {
    one.name: one
    for one in (
        CandidateSite("busy", "well", 90, "slurm"),
        CandidateSite("calm", "well", 3, "htcondor"),
        CandidateSite("quiet", "silent", 0, "slurm"),
        CandidateSite("sick", "trouble", 0, "pbs"),
        CandidateSite("full", "draining", 0, "pbs"),
    )
}


@pytest.mark.parametrize(
    "named, requirements, tried, wanted",
    [
        ((), "", (), "calm"),
        (("busy", "calm"), "", (), "calm"),
        (("busy", "calm"), "", ("calm",), "busy"),
        # Whoever names one means it; what is sent waits there.
        (("quiet",), "", (), "quiet"),
        (("never-heard",), "", (), "never-heard"),
        # One that nobody has heard of is better than one that is known to be silent.
        (("quiet", "never-heard"), "", (), "never-heard"),
        (("never-heard", "busy"), "", (), "busy"),
        # After all have been tried they are tried again.
        (("busy", "calm"), "", ("calm", "busy"), "calm"),
        ((), "batch == 'slurm'", (), "busy"),
        ((), "batch == 'slurm' and jobs < 10", (), ""),
        (("busy", "calm"), "jobs > 10", (), "busy"),
    ],
)
def test_choice(named: tuple[str, ...], requirements: str, tried: tuple[str, ...], wanted: str):
    assert choose(named, requirements, KNOWN, tried).site == wanted


def test_it_says_why_there_is_none():
    assert choose((), "", {}) == Choice(reason="no site has reported yet")
    found = choose(("quiet", "sick", "full"), "", KNOWN)
    assert found.site == ""
    assert found.reason == "quiet is silent; sick is in trouble; full takes no more jobs"
    found = choose(("busy", "calm"), "jobs > 1000", KNOWN)
    assert found.reason == "none of busy, calm is as `jobs > 1000` asks for"
    many = {f"s{n}": CandidateSite(f"s{n}", "silent") for n in range(9)}
    assert choose((), "", many).reason.endswith("; and 4 more")
