"""One rule fires on one event: which jobs come out, and that none comes out twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.event.model import Event, EventKind
from pilotage.job import records
from pilotage.job.model import Binding, Command, Job, JobSpec, Limit, State
from pilotage.rule import firing
from pilotage.rule.model import FilePattern, Gather, Rule
from pilotage.store import Db, connect

NOW = 1000.0
AT = firing.FiringContext(NOW)
KEY = 0


def a_rule(name: str = "clean", points: tuple[dict[str, Any], ...] = ({},), **spec: Any) -> Rule:
    return Rule(name, FilePattern(), JobSpec(Command(("x",)), name, **spec), points)


def ready(*names: Any, **facts: Any) -> firing.PreparedRule:
    return firing.PreparedRule(a_rule(*names, **facts), 3, "/d")


def closed(path: str = "/d/a.csv", version: str = "1-2-3", **facts: Any) -> Event:
    return Event(EventKind.FILE_CLOSED, path, NOW, version, **facts)


@pytest.fixture
def db(tmp_path) -> Iterator[Db]:
    opened = connect(tmp_path / "store.db")
    with opened.transaction():
        yield opened
    opened.close()


def fire(
    db: Db, rule: Rule, event: Event, groups: dict[str, str], when: firing.FiringContext = AT,
    paths: tuple[str, ...] = (),
) -> list[Job]:  # fmt: skip
    """Let a rule fire on event 5 and return the jobs that it made."""
    last = int(db.value("job_last"))
    prepared = firing.PreparedRule(rule, records.intern(db, rule.spec), "/d")
    rows = firing.rows(prepared, event, groups, 5, when, paths)
    firing.add(db, firing.encode(rows), event=0, now=when.now)
    return records.find(db, records.Selection(first=last + 1))


# -- bindings ------------------------------------------------------------------------------------


def test_a_file_is_bound_with_its_version():
    event = closed(data={"sha256": "ab"}, other="/d/b")
    assert firing.binding(event, {"scan": "a"}, {"level": 1}) == Binding(
        path="/d/a.csv", version="1-2-3", sha256="ab", other="/d/b", match={"scan": "a"},
        sweep={"level": 1},
    )  # fmt: skip


@pytest.mark.parametrize(
    "kind", [EventKind.FILE_CREATED, EventKind.FILE_MODIFIED, EventKind.FILE_DELETED]
)
def test_what_may_still_change_is_bound_without_a_version(kind):
    event = Event(kind, "/d/a.csv", NOW, "1-2-3")
    assert firing.binding(event, {}, {}) == Binding(path="/d/a.csv")


def test_a_message_is_bound_with_its_file_and_fields():
    event = Event(EventKind.MESSAGE, "beam.on", NOW, "id", other="/m/1", data={"energy": 12})
    assert firing.binding(event, {}, {}) == Binding(path="/m/1", data={"energy": 12})


@pytest.mark.parametrize("kind", [EventKind.TIMER, EventKind.JOB_ENDED])
def test_ticks_and_ends_are_bound_with_their_facts_only(kind):
    assert firing.binding(Event(kind, "x", NOW, "v", data={"a": 1}), {}, {}) == Binding(
        data={"a": 1}
    )


# -- rows ----------------------------------------------------------------------------------------


def test_a_sweep_makes_a_job_for_each_point(db):
    points = ({"level": 1}, {"level": 2}, {"level": "1"})
    jobs = fire(db, a_rule(points=points, priority=4), closed(), {"scan": "a"})
    assert [job.binding.sweep for job in jobs] == list(points)
    for job in jobs:
        assert (job.name, job.rule, job.priority, job.event) == ("clean", "clean", 4, 5)
        assert (job.state, job.reason, job.created) == (State.QUEUED, "", NOW)
        assert (job.attempt, job.parent, job.depth, job.limit_key) == (0, None, 0, "")
        assert (job.spec.name, job.not_before, job.tag) == ("clean", 0.0, "")
        assert db.rows("journal_of", job=job.id) == [(NOW, 0, "queued", "")]


@pytest.mark.parametrize(
    "when",
    [
        firing.FiringContext(NOW, 8, 2, State.HELD, "loop guard", 1500.0),
        firing.FiringContext(NOW, not_before=1500.0),
        firing.FiringContext(NOW, state=State.HELD, reason="loop guard"),
        firing.FiringContext(NOW, parent=8),
        firing.FiringContext(NOW, parent=8, depth=1),
    ],
)
def test_the_circumstance_is_written_down(db, when):
    (job,) = fire(db, a_rule(priority=4), closed(), {}, when)
    assert (job.state, job.reason, job.not_before) == (when.state, when.reason, when.not_before)
    assert (job.parent, job.depth, job.created) == (when.parent, when.depth, when.now)
    assert (job.name, job.rule, job.priority, job.event) == ("clean", "clean", 4, 5)
    assert db.rows("journal_of", job=job.id) == [(NOW, 0, when.state, when.reason)]


WORDS = st.sampled_from(["a", "b", "ab", "\udcff", "é"])


@given(
    st.lists(st.tuples(WORDS, WORDS, WORDS, WORDS), min_size=2, max_size=2),
)
def test_a_key_is_the_same_for_the_same_rule_file_version_and_point_and_else_not(both):
    keys = [
        firing.rows(ready(name, points=({"p": point},)), closed(f"/d/{path}", version), {}, 1, AT)[
            0
        ][KEY]
        for name, path, version, point in both
    ]
    assert (keys[0] == keys[1]) == (both[0] == both[1])
    assert all(len(key) == 32 for key in keys)


def test_circumstances_and_groups_are_no_part_of_a_key():
    (one,) = firing.rows(ready(), closed(), {}, 1, AT)
    (other,) = firing.rows(ready(), closed(size=9), {"a": "b"}, 2, firing.FiringContext(2 * NOW, 5))
    assert one[KEY] == other[KEY]


def test_a_gathered_set_is_bound_as_a_set(db):
    paths = ("/d/1", "/d/2")
    (job,) = fire(db, a_rule(), closed("/d/2", data={"sha256": "ab"}), {}, AT, paths)
    assert job.binding == Binding(path="/d/2", paths=paths)


def test_a_limit_is_rendered_with_its_number(db):
    (job,) = fire(db, a_rule(limit=Limit("{dir}", 2)), closed("/d/cam/a"), {})
    assert job.limit_key == "/d/cam:2"


def test_a_limit_may_stand_on_groups_sweeps_and_parameters(db):
    made = a_rule(
        limit=Limit("{scan}-{level}-{who}"), points=({"level": 3},), params={"who": "{name}"}
    )
    (job,) = fire(db, made, closed(), {"scan": "s"})
    assert job.limit_key == "s-3-a.csv:1"


# -- size and age --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern, event, out",
    [
        (FilePattern(), closed(), False),
        (FilePattern(min_size=5), closed(size=4), True),
        (FilePattern(min_size=5), closed(size=5), False),
        (FilePattern(min_size=5), Event(EventKind.FILE_DELETED, "/d/a", NOW), False),
        (FilePattern(min_size=5), Event(EventKind.FILE_MOVED_FROM, "/d/a", NOW), False),
        (FilePattern(max_size=5), closed(size=5), False),
        (FilePattern(max_size=5), closed(size=6), True),
        (FilePattern(max_size=0), closed(size=1), True),
        (FilePattern(max_age=10), closed(mtime=NOW - 10), False),
        (FilePattern(max_age=10), closed(mtime=NOW - 11), True),
    ],
)
def test_size_and_age_rule_files_out(pattern, event, out):
    assert firing.unfit(pattern, event, NOW) is out


@pytest.mark.parametrize(
    "pattern, mtime, due",
    [
        (FilePattern(), NOW, 0.0),
        (FilePattern(settle=5), NOW, NOW + 5),
        (FilePattern(min_age=5), NOW - 5, 0.0),
        (FilePattern(min_age=5), NOW - 2, NOW + 3),
        (FilePattern(min_age=5, settle=1), NOW - 2, NOW + 3),
        (FilePattern(min_age=5, settle=9), NOW - 2, NOW + 9),
    ],
)
def test_a_file_is_left_alone_until_both_waits_are_over(pattern, mtime, due):
    assert firing.wait_until(pattern, closed(mtime=mtime), NOW) == due


# -- sets ----------------------------------------------------------------------------------------


BY_COUNT = Gather(by="{match.scan}", count=3)
BY_VALUES = Gather(by="{match.scan}", item="{match.i}", values=("1", "2", "03"))


def come(db: Db, how: Gather, path: str, version: str = "1", **groups: str) -> None:
    rule = firing.PreparedRule(a_rule(), records.intern(db, a_rule().spec), "/d")
    one = firing.arrival(rule, how, closed(path, version), groups)
    firing.note(db, one, lambda _: AT)


def sets(db: Db) -> list[tuple[str, ...]]:
    return [job.binding.paths for job in records.find(db, records.Selection())]


def test_a_set_fires_when_it_is_complete_and_not_before(db):
    for number in (3, 1):
        come(db, BY_COUNT, f"/d/s_{number}", scan="s")
        come(db, BY_COUNT, f"/d/t_{number}", scan="t")
    assert sets(db) == []
    come(db, BY_COUNT, "/d/s_2", scan="s")
    assert sets(db) == [("/d/s_1", "/d/s_2", "/d/s_3")]
    assert db.rows("gathered_list", rule="clean", set_key="s") == []
    assert len(db.rows("gathered_list", rule="clean", set_key="t")) == 2


def test_a_file_that_comes_twice_counts_once(db):
    for version in "12345":
        come(db, BY_COUNT, "/d/s_1", version, scan="s")
    assert sets(db) == []


def test_a_set_is_read_only_when_it_may_be_complete(db, monkeypatch):
    asked = []
    rows = type(db).rows

    def listen(one, query, /, **more):
        asked.append(query)
        return rows(one, query, **more)

    monkeypatch.setattr(type(db), "rows", listen)
    for number in (1, 2, 3):
        come(db, BY_COUNT, f"/d/s_{number}", scan="s")
    assert asked.count("gathered_list") == 1


def test_a_set_of_named_items_waits_for_each_of_them_however_they_are_padded(db):
    come(db, BY_VALUES, "/d/s_001", scan="s", i="001")
    come(db, BY_VALUES, "/d/s_02", scan="s", i="02")
    come(db, BY_VALUES, "/d/s_9", scan="s", i="9")  # belongs to no set
    assert sets(db) == []
    come(db, BY_VALUES, "/d/s_3", scan="s", i="3")
    assert sets(db) == [("/d/s_001", "/d/s_02", "/d/s_3")]


def test_the_same_set_fires_once_and_a_changed_one_again(db):
    for version in ("1", "1", "2"):
        for number in (1, 2, 3):
            come(db, BY_COUNT, f"/d/s_{number}", version, scan="s")
    assert len(sets(db)) == 2


def test_the_first_line_of_a_set_s_job_is_in_the_journal_with_its_event(db):
    for number in (1, 2, 3):
        come(db, BY_COUNT, f"/d/s_{number}", scan="s")
    (job,) = records.find(db, records.Selection())
    assert job.event == 1
    assert db.rows("journal_of", job=job.id) == [(NOW, 0, "queued", "")]


def test_names_that_are_not_text_are_gathered_too(db):
    for number in (1, 2, 3):
        come(db, BY_COUNT, f"/d/\udcff_{number}", scan="\udcff")
    assert sets(db) == [("/d/\udcff_1", "/d/\udcff_2", "/d/\udcff_3")]


@given(st.lists(st.sampled_from("123456789"), unique=True), st.integers(1, 9))
def test_a_count_is_reached_or_not(items, count):
    assert firing.complete(Gather(count=count), items) == (len(items) >= count)


@given(st.sets(st.integers(0, 20), min_size=1), st.data())
def test_values_are_all_there_in_any_order_or_not(values, data):
    wanted = Gather(item="x", values=tuple(f"{value:03d}" for value in values))
    items = data.draw(st.permutations([str(value) for value in values]))
    assert firing.complete(wanted, items)
    assert firing.complete(wanted, [*items, "99"])
    assert not firing.complete(wanted, items[1:])


# -- into the store ------------------------------------------------------------------------------


def test_the_same_event_makes_its_jobs_once_in_whatever_order_they_come(db):
    points = tuple({"level": level} for level in range(5))
    assert len(fire(db, a_rule(points=points[:3]), closed(), {})) == 3
    assert len(fire(db, a_rule(points=points[::-1]), closed(), {})) == 2
    assert fire(db, a_rule(points=points), closed(), {}) == []
    held = firing.FiringContext(NOW, state=State.HELD, reason="loop guard")
    assert fire(db, a_rule(points=points), closed(), {}, held) == []
    assert len(fire(db, a_rule(points=points), closed(version="9-9-9"), {})) == 5


def test_a_job_whose_path_is_not_text_is_read_back_as_it_was(db):
    made = a_rule(limit=Limit("{dir}"))
    (job,) = fire(db, made, closed("/d/\udcff/\udcfe"), {"x": "\udcff"})
    assert (job.binding.path, job.binding.match) == ("/d/\udcff/\udcfe", {"x": "\udcff"})
    assert job.limit_key == "/d///ff:1"
