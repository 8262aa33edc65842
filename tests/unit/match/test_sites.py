"""Whether a site takes a job: one decision, and its sentences."""

from __future__ import annotations

import pytest

from pilotage.base import errors
from pilotage.job.model import App, Command, JobSpec, Recipe, Workflow
from pilotage.match import sites
from pilotage.match.sites import Objection, SiteCause, SiteLimits, SiteView

NOW = 1_700_000_000.0
SITES = SiteView(
    {
        "kit": SiteLimits(name="kit"),
        "mira": SiteLimits(name="mira", applications=("sim", "reco")),
        "theta": SiteLimits(name="theta", cause=SiteCause.SILENT, since=NOW - 300),
        "cori": SiteLimits(
            name="cori", cause=SiteCause.DRAINED, by="eve", words="new disks", since=NOW
        ),
    }
)


def spec(site: str, recipe: Recipe | None = None) -> JobSpec:
    return JobSpec(recipe or Command(("true",)), "job", site=site)


def test_a_site_that_takes_it_or_none_at_all_is_no_objection():
    assert SITES.judge(spec("kit")) is None
    assert SITES.judge(spec("")) is None
    assert SITES.judge(spec("mira", App("sim"))) is None
    assert SITES.judge(spec("nosuch", Workflow({"name": "f"}))) is None


def test_a_site_may_have_an_application_that_takes_programs():
    known = SiteView({"mira": SiteLimits(name="mira", applications=("commands",))})
    assert known.judge(spec("mira")) is None
    found = known.judge(spec("mira", App("sim")))
    assert found is not None
    assert found.cause is SiteCause.APPLICATION


def test_each_cause_has_a_sentence_and_what_to_do():
    cases: list[tuple[JobSpec, SiteCause, str, str]] = [
        (spec("mirra"), SiteCause.UNKNOWN, "there is no site `mirra`", "did you mean `mira`?"),
        (spec("xyz"), SiteCause.UNKNOWN, "there is no site `xyz`", "`pilotage site ls`"),
        (spec("mira"), SiteCause.COMMAND, "only applications", "`reco`, `sim`"),
        (spec("mira", App("sin")), SiteCause.APPLICATION, "no application `sin`", "mean `sim`?"),
        (spec("theta"), SiteCause.SILENT, "is silent since 20", "site check theta"),
        (spec("cori"), SiteCause.DRAINED, "is drained by eve since", "site resume cori"),
    ]
    for asked, cause, said, advice in cases:
        found = SITES.judge(asked)
        assert found is not None
        assert found.cause is cause
        assert said in sites.message(found, NOW)
        assert advice in sites.hint(found)


def test_words_of_who_asked_are_told():
    found = SITES.judge(spec("cori"))
    assert found is not None
    assert sites.message(found, NOW + 60).endswith("(1 m): new disks")


def test_what_waiting_does_not_help_is_refused_and_the_rest_is_told():
    with pytest.raises(errors.NotFound, match="no site `nosuch`"):
        SITES.check(spec("nosuch"), NOW)
    with pytest.raises(errors.Denied, match="only applications"):
        SITES.check(spec("mira"), NOW)
    assert SITES.check(spec("kit"), NOW) == []
    (note,) = SITES.check(spec("theta"), NOW)
    assert "silent" in note


def test_a_name_that_may_be_heard_of_later_is_not_refused():
    unsure = SiteView(SITES.known, "the broker cannot be reached")
    found = unsure.judge(spec("nosuch"))
    assert found is not None
    assert not found.final
    assert sites.message(found, NOW) == (
        "no report from site `nosuch` yet: the broker cannot be reached"
    )


def test_every_cause_can_be_said():
    for cause in SiteCause:
        found = Objection(cause=cause, site="kit", known=tuple("abcdefghijkl"), application="x")
        assert "kit" in sites.message(found, NOW)
        assert sites.hint(found)
