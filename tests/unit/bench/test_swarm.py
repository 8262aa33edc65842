"""The simulated pilots: they speak the protocol as the real ones do."""

from __future__ import annotations

import msgspec
import pytest

from bench.swarm.pilot import Node, Phase, Pilot
from bench.swarm.wire import Answer, Grant, Reader, Trouble, pack


def grant(*keys: str) -> tuple[Grant, ...]:
    return tuple(Grant(key) for key in keys)


def said(pilot: Pilot) -> dict[str, object]:
    message = pilot.say(1.0)
    assert message is not None
    return message


@pytest.fixture
def working() -> Pilot:
    """Return a pilot whose first sync is parked at the hub."""
    pilot = Pilot(Node(cpus=2, token="pil_e_x"), place=3)
    assert said(pilot)["op"] == "hello"
    pilot.take(Answer(n=1, p=3, pilot=17))
    assert said(pilot)["op"] == "ready"
    pilot.take(Answer(n=2, p=3))
    assert said(pilot)["op"] == "sync"
    return pilot


def test_a_pilot_greets_with_a_key_of_its_own_and_its_place_on_the_connection():
    pilot = Pilot(Node(cpus=5, token="pil_e_x"), place=3)
    hello = said(pilot)
    assert (hello["op"], hello["n"], hello["p"], hello["token"]) == ("hello", 1, 3, "pil_e_x")
    assert len(str(hello["key"])) == 64
    assert msgspec.convert(hello["facts"], dict[str, object])["cpus"] == 5
    assert pilot.say(1.0) is None


def test_a_parked_pilot_says_nothing_until_there_is_news(working):
    assert working.phase is Phase.READY
    assert working.say(2.0) is None


def test_an_answer_without_work_is_followed_by_the_next_question(working):
    working.take(Answer(n=3, p=3))
    assert said(working)["op"] == "sync"


def test_jobs_are_told_as_started_and_ended_in_one_message(working):
    assert working.take(Answer(n=3, p=3, jobs=grant("7.1", "8.1"))) == ["7.1", "8.1"]
    working.end("7.1")
    sync = said(working)
    assert sync["started"] == [["7.1", 1], ["8.1", 1]]
    assert sync["ended"] == [{"key": "7.1", "time": 1.0, "exit": 0, "reason": "exited"}]
    assert working.held == {"8.1"}


def test_an_end_overtakes_a_parked_message(working):
    working.take(Answer(n=3, p=3, jobs=grant("7.1")))
    said(working)
    working.take(Answer(n=4, p=3))
    assert said(working)["ended"] == []
    working.end("7.1")
    sync = said(working)
    assert sync["n"] == 6
    # The parked one is answered first, and that answer acknowledges nothing.
    working.take(Answer(n=5, p=3))
    assert working.say(1.0) is None
    working.take(Answer(n=6, p=3))
    assert said(working)["ended"] == []


def test_after_a_cut_what_was_under_way_is_told_again_and_what_ended_is_still_held(working):
    working.take(Answer(n=3, p=3, jobs=grant("7.1", "8.1")))
    working.end("7.1")
    said(working)
    working.cut()
    resume = said(working)
    assert (resume["op"], resume["pilot"], resume["running"]) == ("resume", 17, ["7.1", "8.1"])
    begun = working.take(Answer(n=int(str(resume["n"])), p=3, jobs=grant("9.1")))
    assert begun == ["9.1"]
    sync = said(working)
    assert [one["key"] for one in msgspec.convert(sync["ended"], list[dict[str, object]])] == [
        "7.1"
    ]


def test_no_job_begins_twice_on_a_pilot(working):
    working.take(Answer(n=3, p=3, jobs=grant("7.1")))
    assert working.take(Answer(n=3, p=3, jobs=grant("7.1"))) == []


def test_a_job_that_must_stop_does_not_end_well(working):
    working.take(Answer(n=3, p=3, jobs=grant("7.1")))
    said(working)
    working.take(Answer(n=4, p=3, stop=grant("7.1")))
    working.end("7.1")
    assert said(working)["ended"] == []


def test_a_refused_pilot_is_gone_and_knows_why():
    pilot = Pilot(Node())
    pilot.say(1.0)
    assert pilot.take(Answer(n=1, error=Trouble("denied", "no such token"))) == []
    assert (pilot.phase, pilot.trouble) == (Phase.GONE, "denied: no such token")
    assert pilot.say(1.0) is None


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_answers_are_read_from_pieces_of_any_size(piece):
    head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: pilotage\r\n\r\n"
    launch = {"key": "7.1", "argv": ["true"], "env": {}}
    data = head + pack({"n": 1, "p": 2, "jobs": [launch]}) + pack({"n": 2, "bye": True})
    reader = Reader()
    found = [one for at in range(0, len(data), piece) for one in reader.feed(data[at : at + piece])]
    assert found == [Answer(n=1, p=2, jobs=grant("7.1")), Answer(n=2, bye=True)]


def test_a_hub_that_does_not_agree_is_an_error():
    with pytest.raises(ConnectionError, match="404"):
        Reader().feed(b"HTTP/1.1 404 Not Found\r\n\r\n")
