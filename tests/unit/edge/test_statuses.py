"""What a hub makes of what sites say of its jobs, word by word."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilotage.base import errors, text
from pilotage.bus import wire
from pilotage.bus.model import Answer, Control, Input, Job, Output, Result, Status
from pilotage.edge import cancel, message, place, records, silence, statuses
from pilotage.edge.message import Handoff, HubIdentity
from pilotage.edge.records import RemoteAttempt
from pilotage.edge.silence import SilenceLimits
from pilotage.edge.statuses import ReceivedWord, own, proved
from pilotage.job import moves
from pilotage.job import records as jobs
from pilotage.job.model import App, Binding, JobSpec, NewJob, Script, State
from pilotage.job.outcome import Cause
from pilotage.project import tokens
from pilotage.store import sqlite
from pilotage.store.sqlite import Db

MINE = HubIdentity("abcd1234")
PATIENCE = SilenceLimits(ask=10.0, silence=600.0)
SPEC = JobSpec(recipe=App("sim"), name="far", site="mira")


def anywhere(_: str) -> bool:
    """Say of each site that it can be asked."""
    return True


@pytest.fixture
def db() -> Db:
    """Have job 1 at the site `mira`, whose message was written at 1."""
    made = sqlite.connect(Path(":memory:"))
    assert jobs.add(made, NewJob(SPEC), 0.0) == 1
    moves.claim(made, {1: "site:mira"}, "/jobs", 0.5, State.STAGING_IN)
    records.add(made, (1, 1), "mira", Handoff(), b"{}", 1.0)
    return made


def send(db: Db, now: float = 2.0) -> None:
    records.sent(db, records.due(db, now, 0, 10), now)


def said(
    state: str, seq: int = 1, *, site: str = "mira", key: str = "job.1.1", **more: Any
) -> Status:
    told: Any = {"site": site, "job": 7, "key": MINE.key(key), "seq": seq, "state": state}
    return msgspec.convert({**told, "time": 100.0 + seq, **more}, Status)


def answer(verb: str, state: str = "", *, job: int = 7, draining: bool = False) -> Answer:
    told: Any = {"job": job, "key": MINE.key("job.1.1"), "state": state, "ok": bool(job)}
    one = msgspec.convert(told, Result)
    return Answer(site="mira", time=1.0, verb=verb, results=(one,), draining=draining)  # type: ignore[arg-type]


def attempt(db: Db) -> RemoteAttempt:
    found = records.get(db, 1, 1)
    assert found is not None
    return found


def state(db: Db) -> tuple[State, str]:
    job = jobs.get(db, 1)
    return job.state, job.reason


def verbs(db: Db, now: float) -> list[str]:
    """Return what is asked of sites now, by messages that are about controls."""
    words = [one for one in records.due(db, now, 0, 10) if one.kind == "control"]
    return [msgspec.json.decode(one.body, type=Control).verb for one in words]


def test_the_same_attempt_is_written_once(db: Db):
    records.add(db, (1, 1), "mira", Handoff(), b"{}", 3.0)
    assert [one.kind for one in records.due(db, 9.0, 0, 10)] == ["job"]


def test_a_job_is_kept_until_its_site_was_heard(db: Db):
    send(db)
    assert records.due(db, 9.0, 0, 10) == []
    assert records.again(db, 1, 1)
    statuses.hear(db, [said("queued")], MINE, 3.0)
    assert not records.again(db, 1, 1)


def test_progress_is_that_of_the_job(db: Db):
    for seq, (word, expected) in enumerate(
        [("queued", State.STAGING_IN), ("submitted", State.SUBMITTED), ("running", State.RUNNING)],
        start=1,
    ):
        statuses.hear(db, [said(word, seq, reason={"text": "PENDING: Priority"})], MINE, 3.0)
        assert state(db)[0] is expected
        assert "PENDING: Priority" in state(db)[1]


def test_what_a_function_returned_is_kept_with_its_job(db: Db):
    statuses.hear(db, [said("running", 2, result='"early"')], MINE, 3.0)
    assert db.row("result_get", job=1) is None
    statuses.hear(db, [said("done", 3, result='{"returns": [{"ok": 7}]}')], MINE, 3.0)
    assert db.value("result_get", job=1) == '{"returns":[{"ok":7}]}'
    statuses.hear(db, [said("failed", 4, result='"late"')], MINE, 3.0)
    assert db.value("result_get", job=1) == '{"returns":[{"ok":7}]}'


def test_a_result_that_is_no_json_is_not_kept(db: Db):
    (over,) = statuses.hear(db, [said("done", 3, result='{"returns": [')], MINE, 3.0)
    assert over.state == "done"
    assert db.row("result_get", job=1) is None


@pytest.mark.parametrize("word", ["done", "failed", "cancelled", "rejected"])
def test_the_last_word_counts_once(db: Db, word: str):
    over = statuses.hear(db, [said("running", 2), said(word, 3)], MINE, 3.0)
    assert [(one.job, one.number, one.state) for one in over] == [(1, 1, word)]
    assert statuses.hear(db, [said(word, 3), said("running", 4), said("done", 5)], MINE, 4.0) == []
    assert attempt(db).state == word


def test_old_words_and_words_of_others_do_not_count(db: Db):
    statuses.hear(db, [said("running", 5)], MINE, 3.0)
    heard = [
        said("failed", 4),
        said("failed", 9, site="other"),
        said("failed", 9, key="job.1.2"),
        said("failed", 9, key="flow.1.1.1"),
        said("failed", 9, key="job.1"),
    ]
    assert statuses.hear(db, heard, MINE, 4.0) == []
    assert statuses.hear(db, [said("failed", 9)], HubIdentity("another"), 4.0) == []
    assert attempt(db).state == "running"


def test_what_a_site_does_not_know_yet_is_sent_again(db: Db):
    send(db)
    assert statuses.hear(db, [answer("query", job=0)], MINE, 3.0) == []
    assert [one.kind for one in records.due(db, 3.0, 0, 10)] == ["job"]


def test_what_a_site_has_forgotten_is_lost(db: Db):
    send(db)
    statuses.hear(db, [said("running")], MINE, 3.0)
    assert silence.ask(db, MINE, PATIENCE, 20.0, anywhere) == 1
    (over,) = statuses.hear(db, [answer("query", job=0)], MINE, 21.0)
    end = place.ending(over, "")
    assert (end.ok, end.lost, end.cause) == (False, True, Cause.LOST)


def test_a_site_that_is_drained_has_not_looked_at_what_waits(db: Db):
    send(db)
    statuses.hear(db, [said("running")], MINE, 3.0)
    silence.ask(db, MINE, PATIENCE, 20.0, anywhere)
    assert statuses.hear(db, [answer("query", job=0, draining=True)], MINE, 21.0) == []


def test_a_quiet_site_is_asked_and_then_waited_for(db: Db):
    send(db)
    assert silence.ask(db, MINE, PATIENCE, 5.0, anywhere) == 0
    assert silence.ask(db, MINE, PATIENCE, 20.0, anywhere) == 1
    assert verbs(db, 20.0) == ["query"]
    assert silence.ask(db, MINE, PATIENCE, 21.0, anywhere) == 0
    assert silence.give_up(db, PATIENCE, 0.0, 700.0, anywhere) == []
    assert state(db) == (State.STAGING_IN, "mira has been silent for 11 m 38 s")
    # We listen again since a moment only: nothing is said of the site.
    assert silence.give_up(db, PATIENCE, 4800.0, 5000.0, anywhere) == []
    assert state(db) == (State.STAGING_IN, "mira has been silent for 11 m 38 s")


def test_what_the_broker_refused_is_cancelled_at_once(db: Db):
    (one,) = records.due(db, 2.0, 0, 10)
    records.later(db, one, 2.0)
    assert cancel.cancel(db, attempt(db), "enough", MINE, 3.0)
    assert attempt(db).state == "cancelled"
    # It was on its way after all.
    records.sent(db, [one], 4.0)
    cancel.crossed(db, 1, 1, MINE, 4.0)
    assert verbs(db, 4.0) == ["cancel"]


def test_what_arrives_after_it_was_cancelled_unsent_is_cancelled_there(db: Db):
    records.later(db, records.due(db, 2.0, 0, 10)[0], 2.0)
    on_the_way = records.due(db, 9.0, 0, 10)
    assert cancel.cancel(db, attempt(db), "no more", MINE, 9.0)
    # Its site has it after all, and says so before its message counts as sent.
    assert statuses.hear(db, [said("queued", 1)], MINE, 9.5) == []
    for job, number in records.sent(db, on_the_way, 9.6):
        cancel.crossed(db, job, number, MINE, 9.6)
    assert verbs(db, 10.0) == ["cancel"]
    statuses.hear(db, [said("queued", 1), said("cancelled", 2)], MINE, 10.5)
    assert verbs(db, 11.0) == ["cancel"]


def test_a_site_is_told_to_cancel_until_it_knows_or_is_believed(db: Db):
    send(db)
    assert not cancel.cancel(db, attempt(db), "enough", MINE, 3.0)
    over: list[RemoteAttempt] = []
    now, told = 3.0, 0
    while not over:
        words = records.due(db, now, 0, 10)
        told += len(words)
        records.sent(db, words, now)
        over = statuses.hear(db, [answer("cancel", job=0)], MINE, now)
        now += 100.0
    assert 2 < told < 10
    assert attempt(db).state == "cancelled"


def test_a_call_that_is_about_to_be_repeated_is_not_repeated_by_those_who_look(db: Db):
    send(db)
    cancel.cancel(db, attempt(db), "enough", MINE, 3.0)
    records.sent(db, records.due(db, 3.0, 0, 10), 3.0)
    # Neither what was called a moment ago nor what waits to be called is called once more.
    assert silence.ask(db, MINE, PATIENCE, 12.5, anywhere) == 0
    statuses.hear(db, [answer("cancel", job=0)], MINE, 12.6)
    assert silence.ask(db, MINE, PATIENCE, 13.0, anywhere) == 0
    assert verbs(db, 99.0) == ["cancel"]
    statuses.hear(db, [answer("cancel", "cancelled")], MINE, 14.0)
    assert attempt(db).state == "cancelled"


def test_an_old_answer_does_not_end_what_is_being_cancelled(db: Db):
    send(db)
    silence.ask(db, MINE, PATIENCE, 20.0, anywhere)
    # The site was asked before it had the job, which it has now.
    statuses.hear(db, [said("queued", 1)], MINE, 20.5)
    cancel.cancel(db, attempt(db), "enough", MINE, 21.0)
    assert statuses.hear(db, [answer("query", job=0)], MINE, 21.5) == []


def test_a_cancelled_attempt_of_a_silent_site_is_given_up_late(db: Db):
    send(db)
    cancel.cancel(db, attempt(db), "enough", MINE, 3.0)
    silence.ask(db, MINE, PATIENCE, 20.0, anywhere)
    assert silence.give_up(db, PATIENCE, 0.0, 300.0, anywhere) == []
    (over,) = silence.give_up(db, PATIENCE, 0.0, 700.0, anywhere)
    assert (over.job, over.number, over.state) == (1, 1, "cancelled")
    assert attempt(db).state == "cancelled"


@pytest.mark.parametrize(
    "word, stop, expected",
    [
        ({"state": "done"}, "", {"ok": True}),
        ({"state": "failed", "code": "memory"}, "", {"ok": False, "cause": Cause.MEMORY}),
        (
            {"state": "rejected", "kind": "policy", "code": "denied"},
            "",
            {"rejected": "mira refused it: why", "refused": False},
        ),
        (
            {"state": "rejected", "kind": "message", "code": "conflict"},
            "",
            {"rejected": "mira refused it: why", "refused": False},
        ),
        (
            {"state": "rejected", "kind": "policy", "code": "limits"},
            "",
            {"rejected": "", "refused": True, "again": 0.0, "message": "mira refused it: why"},
        ),
        (
            {"state": "rejected", "kind": "policy", "code": "busy"},
            "",
            {"rejected": "", "refused": True, "again": 30.0},
        ),
        ({"state": "cancelled"}, "", {"call_off": "cancelled at mira: why"}),
        ({"state": "cancelled"}, "by ada", {"stopped": True, "message": "by ada"}),
    ],
)
def test_what_the_last_word_means_for_the_job(
    db: Db, word: dict[str, str], stop: str, expected: dict[str, Any]
):
    row = msgspec.structs.replace(attempt(db), reason="why", began=100.0, stopped=107.5, **word)
    end = place.ending(row, stop)
    assert {name: getattr(end, name) for name in expected} == expected
    assert end.wall == (None if word["state"] == "rejected" else 7.5)


def test_a_job_that_may_run_elsewhere_is_never_rejected_by_the_rules_of_one_site(db: Db):
    row = msgspec.structs.replace(attempt(db), state="rejected", kind="policy", code="denied")
    assert place.ending(row, "", named=False).refused
    conflict = msgspec.structs.replace(row, kind="message", code="conflict")
    assert place.ending(conflict, "", named=False).rejected


# -- the message -----------------------------------------------------------------------------------

BASE = "/home/ada/project"
FILE = Binding(path=f"{BASE}/in/7.dat", match={"run": "7"})


def made(spec: JobSpec, binding: Binding = FILE) -> Any:
    there = message.remote(spec, binding, BASE, 3)
    data = Handoff(outputs=message.outputs(there, "https://d.org/x/"))
    body = message.job(there, spec, data, site="mira", key="k", reply="")
    return msgspec.to_builtins(wire.decode(body))


def test_the_folder_of_the_job_stands_for_the_project():
    params = {"input": "{path}", "dir": "{dir}", "base": "{base}", "run": "{run}", "job": "{job}"}
    spec = JobSpec(
        recipe=App("sim"), name="far", site="mira", params=params,
        outputs={"a": "{base}/out/{run}.root", "b": f"{BASE}/b", "c": "c/"},
    )  # fmt: skip
    found = made(spec)
    assert found["parameters"] == {
        "input": "in/7.dat", "dir": "in", "base": ".", "run": "7", "job": 3,
    }  # fmt: skip
    assert [one["path"] for one in found["outputs"]] == ["out/7.root", "b", "c"]
    assert {one["url"] for one in found["outputs"]} == {"https://d.org/x/"}


@pytest.mark.parametrize(
    "change, words",
    [
        ({"recipe": Script(source="true")}, "administrator registered"),
        ({"recipe": App("sim", args=("-v",))}, "`args`"),
        ({"params": {"x": [1]}}, "`x`"),
        ({"params": {"x": "a\nb"}}, "no site would accept it"),
        ({"outputs": {"a": "../x"}}, "not below"),
        ({"outputs": {"a": "/etc/x"}}, "not below"),
        ({"outputs": {"a": "{base}"}}, "not below"),
        ({"recipe": App("no such")}, "no site would accept it"),
    ],
)
def test_what_no_site_could_run_is_said(change: dict[str, Any], words: str):
    spec = msgspec.structs.replace(SPEC, **change)
    with pytest.raises(errors.PilotageError, match=words):
        made(spec)


def test_a_site_that_cannot_be_asked_is_not_and_one_not_listened_to_is_not_silent(db: Db):
    send(db)
    assert silence.ask(db, MINE, PATIENCE, 20.0, lambda site: site != "mira") == 0
    assert silence.ask(db, MINE, PATIENCE, 20.0, anywhere) == 1
    silence.give_up(db, PATIENCE, 0.0, 700.0, lambda site: site != "mira")
    assert "has been silent" not in jobs.get(db, 1).reason


def test_messages_go_by_the_carrier_of_their_site(db: Db):
    assert [one.topic for one in records.due(db, 2.0, 0, 10)] == ["job.mira"]
    assert records.due(db, 2.0, 0, 10, "kit") == []
    secret, number = tokens.mint(
        db, tokens.TokenScope.AGENT, "", now=1.0, lifetime=60.0, site="mira"
    )  # fmt: skip
    # A token that nobody has used yet changes nothing.
    assert records.ported(db) == set()
    tokens.admit(db, secret, f"pil_g_{'k' * 43}", "mira", 2.0)
    assert records.ported(db) == {"mira"}
    assert records.due(db, 2.0, 0, 10) == []
    assert [one.topic for one in records.due(db, 2.0, 0, 10, "mira")] == ["job.mira"]
    tokens.revoke(db, number, 3.0)
    assert [one.topic for one in records.due(db, 4.0, 0, 10)] == ["job.mira"]


def test_what_nobody_listened_to_is_sent_as_soon_as_somebody_does(db: Db):
    (one,) = records.due(db, 2.0, 0, 10)
    records.later(db, one, 2.0)
    assert records.due(db, 2.5, 0, 10) == []
    records.soon(db, ["job.kit"])
    assert records.due(db, 2.5, 0, 10) == []
    records.soon(db, ["job.mira"])
    assert [one.id for one in records.due(db, 2.5, 0, 10)] == [one.id]
    # What was sent is not sent again.
    send(db, 3.0)
    records.soon(db, ["job.mira"])
    assert records.due(db, 3.5, 0, 10) == []


def test_by_the_port_a_site_speaks_for_itself_and_by_the_broker_no_longer(db: Db):
    words = [ReceivedWord("mira", said("running")), ReceivedWord("kit", said("running", 2))]
    assert proved(words) == [words[0].word]
    assert list(own(db, words)) == [one.word for one in words]
    secret, _ = tokens.mint(db, tokens.TokenScope.AGENT, "", now=1.0, lifetime=60.0, site="mira")
    tokens.admit(db, secret, f"pil_g_{'k' * 43}", "mira", 2.0)
    assert list(own(db, words)) == []


# -- steps of workflows ----------------------------------------------------------------------------


def test_each_attempt_of_a_step_has_a_folder_of_its_own():
    data = Handoff(
        outputs=(Output(path="a", url="https://d.org/w/1/", below="a"),), place="https://d.org/r/1/"
    )
    assert data.of(1) == data
    again = data.of(2)
    assert (again.outputs[0].url, again.place) == ("https://d.org/w/1~2/", "https://d.org/r/1~2/")
    assert Handoff().of(2) == Handoff()


def test_what_a_step_has_beside_its_job_is_in_its_message():
    data = Handoff(
        inputs=(Input(url="https://d.org/x", path="x", sha256="a" * 64),),
        outputs=(Output(path="y", url="https://d.org/w/", below="y"),),
        place="https://d.org/r/", config="n = 1", config_file="x",
    )  # fmt: skip
    binding = Binding(handoff=msgspec.to_builtins(data))
    stored = jobs.read_binding(text.dump(binding))
    assert message.handoff(stored) == data
    assert message.handoff(Binding()) is None
    there = message.remote(SPEC, stored, BASE, 3)
    found = wire.decode(message.job(there, SPEC, data, site="mira", key="k", reply=""))
    assert isinstance(found, Job)
    assert (found.inputs, found.outputs) == (data.inputs, data.outputs)
    assert (found.config, found.config_file) == ("n = 1", "x")


class Heard:
    """Notes what workflows hear of their steps."""

    def __init__(self) -> None:
        self.words: list[tuple[object, ...]] = []

    def resent(self, db: Db, site: str, key: str, word: Status | Result, now: float, /) -> None:
        del db, now
        self.words.append((site, key, type(word).__name__))

    def silent(self, db: Db, job: int, reason: str, now: float, /) -> None:
        del db, now
        self.words.append((job, reason))

    def offered(self, db: Db, site: str, applications: Sequence[str], now: float, /) -> None:
        del db, site, applications, now

    def strand(self, db: Db, before: float, now: float, /) -> None:
        del db, before, now


def test_a_workflow_hears_that_outputs_were_sent_again_or_cannot_be(db: Db):
    heard = Heard()
    statuses.hear(db, [said("done", 3)], MINE, 3.0, heard)
    assert heard.words == [], "it was not asked for"
    statuses.hear(db, [said("done", 3), said("done", 4, site="other")], MINE, 4.0, heard)
    assert heard.words == []
    statuses.hear(db, [said("done", 5), said("done", 5)], MINE, 5.0, heard)
    assert heard.words == [("mira", "job.1.1", "Status")]
    statuses.hear(db, [answer("resend", job=0)], MINE, 6.0, heard)
    assert heard.words[1:] == [("mira", "job.1.1", "Result")]


def test_a_workflow_hears_that_a_site_is_silent(db: Db):
    heard = Heard()
    send(db)
    silence.ask(db, MINE, PATIENCE, 20.0, anywhere)
    silence.give_up(db, PATIENCE, 0.0, 700.0, anywhere, heard)
    assert heard.words == [(1, "mira has been silent for 11 m 38 s")]
