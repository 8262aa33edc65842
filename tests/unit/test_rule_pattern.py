"""The index finds what rule-by-rule comparison finds, and knows where to look."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotage.bus.port import matches as topic_match
from pilotage.event.model import Event, EventKind
from pilotage.job.model import Command, JobSpec, State
from pilotage.rule import pattern as patterns
from pilotage.rule.model import FilePattern, JobPattern, MessagePattern, Rule, TimerPattern
from pilotage.rule.pattern import Index
from pilotage.rule.verdict import judge, match_file

SPEC = JobSpec(recipe=Command(("true",)), name="r")


def rule(name="r", *globs, **more):
    base = more.pop("base", "/p")
    return Rule(name=name, pattern=FilePattern(globs=globs, base=base, **more), spec=SPEC)


STEPS = st.sampled_from(["a", "b", "ab", "*", "a*", "*b", "**", "?", "[ab]", ".h", "{x}", "a*b"])
LASTS = st.sampled_from(
    ["a", "ab", "*", "a*", "*b", "a*b", "?b", "{n}", "a{n}", "{n}b", "a{n}b", "*a*", "**", "[ab]*"]
)
GLOBS = st.tuples(st.lists(STEPS, max_size=3), LASTS).map(lambda t: "/p/" + "/".join([*t[0], t[1]]))
GLOBS = GLOBS.filter(lambda text: text.count("{x}") < 2)
REGEXES = st.sampled_from(
    ["", "a/.*b", r"(?P<d>[^/]*)/(?P<n>a+)", "a|b/a", ".*", "a/b/?(a)?b", r"ab/\.h/.", "(a|b)/ab"]
)
EXCLUDES = st.lists(st.sampled_from(["*b", "a/*", "**/ab", "a/**", ".*"]), max_size=2).map(tuple)
PATTERNS = st.builds(
    FilePattern,
    globs=st.lists(GLOBS, max_size=3).map(tuple),
    regex=REGEXES,
    base=st.just("/p"),
    exclude=EXCLUDES,
)
RULES = st.lists(PATTERNS, max_size=8).map(
    lambda found: [Rule(name=f"r{at}", pattern=each, spec=SPEC) for at, each in enumerate(found)]
)
PARTS = st.sampled_from(["a", "b", "ab", "aab", "abb", ".h", "c", "ba"])
PATHS = st.tuples(st.lists(PARTS, max_size=4), PARTS).map(
    lambda found: ("/".join(["/p", *found[0]]), found[1])
)


@settings(max_examples=400)
@given(RULES, st.lists(PATHS, max_size=12), st.sampled_from([0, 3]))
def test_the_index_finds_what_comparing_each_rule_finds(rules, paths, few):
    with mock.patch.object(patterns, "_FEW", few):
        index = Index(rules)
    for directory, name in [*paths, *paths]:
        each = [(rule, match_file(rule.pattern, directory, name)) for rule in rules]
        assert list(index.find(directory, name)) == [pair for pair in each if pair[1] is not None]


@settings(max_examples=300)
@given(RULES, st.lists(PATHS, max_size=8))
def test_the_scope_leads_to_everything_that_matches(rules, paths):
    index = Index(rules)
    for directory, name in paths:
        if index.find(directory, name):
            assert index.scope.inside(directory)
            parts = directory.split("/")
            for end in range(1, len(parts) + 1):
                assert index.scope.descend("/".join(parts[:end]) or "/")
            assert any(f"{directory}/".startswith(f"{root}/") for root in index.scope.roots)


def test_the_scope_says_where_to_look():
    rules = [rule("a", "/p/raw/*.csv"), rule("b", "/p/deep/**/x"), rule("c", "/p/s/*/t/*.h5")]
    scope = Index(rules).scope
    assert scope.roots == ("/p/deep", "/p/raw", "/p/s")
    yes = "/ /p /p/raw /p/deep /p/deep/a/b /p/s /p/s/1 /p/s/1/t"
    assert all(scope.descend(each) for each in yes.split())
    no = "/q /p/raw/x /p/other /p/s/1/u /p/s/1/t/x /p/deep/.git /p/rawer"
    assert not any(scope.descend(each) for each in no.split())
    assert all(scope.inside(each) for each in ["/p/raw", "/p/deep", "/p/deep/x", "/p/s/1/t"])
    assert not any(scope.inside(each) for each in ["/", "/p", "/p/s", "/p/s/1", "/p/raw/x"])


def test_roots_are_the_fewest():
    assert Index([rule("a", "/p/x/*"), rule("b", "/p/*"), rule("c", "/pp/*")]).scope.roots == (
        "/p",
        "/pp",
    )
    assert Index([]).scope.roots == ()


def test_a_regex_is_looked_for_below_its_literal_start():
    assert Index([rule("a", regex=r"raw/x\.y/scan_\d+")]).scope.roots == ("/p/raw/x.y",)
    assert Index([rule("a", regex=r"raw/a|b")]).scope.roots == ("/p",)
    assert Index([rule("a", regex=r"raw/?a", base="/")]).scope.roots == ("/",)


def test_regex_groups_are_captured():
    index = Index([rule("a", regex=r"raw/(?P<s>\d+)(?P<t>x)?\.h5")])
    assert index.find("/p/raw", "12.h5")[0][1] == {"s": "12", "t": ""}
    assert not index.find("/q/raw", "12.h5")


def test_only_the_first_matching_glob_of_a_rule_counts():
    index = Index([rule("a", "/p/{x}.csv", "/p/*"), rule("b", "/p/*.csv")])
    assert [(found.name, groups) for found, groups in index.find("/p", "q.csv")] == [
        ("a", {"x": "q"}),
        ("b", {}),
    ]


def test_the_memory_of_directories_is_bounded(monkeypatch):
    monkeypatch.setattr(patterns, "MOST_DIRECTORIES", 10)
    index = Index([rule("a", "/p/**/*.csv")])
    for at in range(100):
        assert index.find(f"/p/{at}", "a.csv")
    assert len(index._known) <= 10


def test_disabled_rules_do_not_take_part():
    off = Rule(name="a", pattern=FilePattern(globs=("/p/*",)), spec=SPEC, enabled=False)
    index = Index([off])
    assert (index.find("/p", "a"), index.kinds, index.scope.roots) == ((), frozenset(), ())


@pytest.mark.parametrize(
    "wanted, topic, matches",
    [
        ("a.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.*", "a", False),
        ("a.**", "a", True),
        ("a.**", "a.b.c", True),
        ("**.c", "a.b.c", True),
        ("**", "", True),
        ("a.temp*", "a.temperature", True),
        ("a.b", "axb", False),
    ],
)
def test_topics(wanted, topic, matches):
    assert topic_match(wanted, topic) is matches


def test_messages_jobs_and_timers_are_found():
    rules = [
        Rule(name="m", pattern=MessagePattern(("lab.*",)), spec=SPEC),
        Rule(name="j", pattern=JobPattern(("clean*",), frozenset({State.FAILED})), spec=SPEC),
        Rule(name="t", pattern=TimerPattern(every=60), spec=SPEC),
    ]
    index = Index(rules)

    def names(kind, subject, **data):
        event = Event(kind=kind, subject=subject, time=0, data=data)
        found = [each.name for each, _ in index.others(event)]
        assert found == [each.name for each in rules if judge(each, event, 0).fires]
        return found

    assert names(EventKind.MESSAGE, "lab.door") == ["m"]
    assert names(EventKind.MESSAGE, "office.door") == []
    assert names(EventKind.JOB_ENDED, "clean-1", state="failed") == ["j"]
    assert names(EventKind.JOB_ENDED, "clean-1", state="done") == []
    assert names(EventKind.TIMER, "t") == ["t"]
    assert names(EventKind.TIMER, "m") == []
    assert index.kinds == {EventKind.MESSAGE, EventKind.JOB_ENDED, EventKind.TIMER}


def closed(path, kind=EventKind.FILE_CLOSED, **more):
    return Event(kind=kind, subject=path, time=100, **{"mtime": 90.0, **more})


@pytest.mark.parametrize(
    "clauses, event, reasons",
    [
        ({}, closed("/p/raw/a.csv"), ()),
        ({}, closed("/p/raw/a.txt"), ("name 'a.txt' does not match 'raw/*.csv'",)),
        (
            {},
            closed("/p/new/a.csv"),
            ("path 'new/a.csv' does not match 'raw/*.csv': directory '/p/new' is not '/p/raw'",),
        ),
        (
            {},
            closed("/p/raw/.a.csv"),
            (
                (
                    "name '.a.csv' does not match 'raw/*.csv': "
                    "a name that begins with a dot needs a glob that does"
                ),
            ),
        ),
        (
            {},
            closed("/p/raw/a.csv", EventKind.FILE_CREATED),
            ("event is file.created; the rule waits for file.closed, file.existing, file.moved",),
        ),
        (
            {"min_size": 1024, "max_age": 5.0},
            closed("/p/raw/a.csv", size=10),
            ("size 10 B is below min_size 1.0 KiB", "age 10.0 s is above max_age 5.0 s"),
        ),
        (
            {"max_size": 5, "min_age": 60.0},
            closed("/p/raw/a.csv", size=10),
            (
                "size 10 B is above max_size 5 B",
                (
                    "age 10.0 s is below min_age 1 m; "
                    "the rule fires in 50.0 s if the file is left alone"
                ),
            ),
        ),
        (
            {"min_size": 1024, "events": frozenset({EventKind.FILE_DELETED})},
            closed("/p/raw/a.csv", EventKind.FILE_DELETED),
            (),
        ),
        (
            {"exclude": ("a*",)},
            closed("/p/raw/a.csv"),
            ("'a.csv' is excluded by 'a*'",),
        ),
        (
            {},
            Event(kind=EventKind.MESSAGE, subject="x", time=0),
            ("event is message; the rule waits for file.closed, file.existing, file.moved",),
        ),
    ],
)
def test_a_verdict_has_every_reason(clauses, event, reasons):
    verdict = judge(rule("r", "/p/raw/*.csv", **clauses), event, 100.0)
    assert verdict.reasons == reasons
    assert verdict.fires is not bool(reasons)
