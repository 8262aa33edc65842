"""The core of the client against a hub that is a model: whatever happens, one answer for each."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.client import core
from pilotage.client import core as cores
from pilotage.client.core import Core
from pilotage.client.model import CallRange, Delivery, Ticket
from pilotage.link import codec

GRANTED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: pilotage\r\n\r\n"
SPEC = b'{"name":"f"}'


class Taken(Ticket):
    """Counts what comes for each of its calls."""

    def __init__(self, count: int = 1) -> None:
        self.found: list[list[Any]] = [[] for _ in range(count)]

    def deliver(self, found: Delivery) -> None:
        if found.error is not None:
            for at in range(found.at, found.at + found.count):
                self.found[at].append(found.error)
        elif not found.returns:
            self.found[found.at].append(found.answer)
        for at, one in enumerate(found.returns, found.at):
            self.found[at].append(one.error or one.ok)


class Hub:
    """Keeps jobs by their key, and answers requests in any order."""

    def __init__(self) -> None:
        self.keys: dict[str, int] = {}
        self.jobs: dict[int, dict[str, Any]] = {}
        self.ends: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.cancelled: list[int] = []
        self._heard = b""

    def connect(self) -> bytes:
        """Forget what was said on the last connection."""
        self.asked, self._heard = [], b""
        return GRANTED

    def hear(self, data: bytes) -> None:
        self._heard += data
        if self._heard.startswith(b"GET /link "):
            _, end, rest = self._heard.partition(b"\r\n\r\n")
            if not end:
                return
            self._heard = rest
        while len(self._heard) >= 4:
            length = int.from_bytes(self._heard[:4], "big")
            if len(self._heard) < 4 + length:
                return
            self.asked.append(json.loads(self._heard[4 : 4 + length]))
            self._heard = self._heard[4 + length :]

    def answer(self, which: int) -> bytes:
        """Answer one of the requests that wait; an `ends` without news waits on."""
        request = self.asked[which % len(self.asked)]
        reply = self._do(request)
        if reply is None:
            return b""
        self.asked.remove(request)
        return codec.frame(json.dumps({"n": request["n"], **reply}).encode())

    def _do(self, request: dict[str, Any]) -> dict[str, Any] | None:
        match request["op"]:
            case "login":
                return {"owner": "me", "cpus": 2}
            case "submit":
                return {"ids": [self._add(job) for job in request["jobs"]]}
            case "cancel":
                self.cancelled += request["jobs"]
                return {"states": {}}
            case _:
                new = self.ends[request["after"] :]
                return {"ends": new, "after": len(self.ends)} if new else None

    def _add(self, job: dict[str, Any]) -> int:
        if job["key"] not in self.keys:
            number = self.keys[job["key"]] = len(self.keys) + 1
            self.jobs[number] = job
        return self.keys[job["key"]]

    def end(self, which: int, how: int) -> None:
        """End one of the jobs that run: well, early, badly, or well again."""
        number = sorted(self.jobs)[which % len(self.jobs)]
        job = self.jobs.pop(number)
        calls = job["binding"].get("data", {}).get("calls")
        end: dict[str, Any] = {"seq": len(self.ends) + 1, "job": number, "state": "done"}
        if calls is None:
            end["state"] = ("done", "done", "failed", "done")[how]
        elif how == 2:
            end |= {"state": "failed", "reason": "its worker was killed by SIGSEGV"}
        else:
            made = calls[: max(1, len(calls) // 2)] if how == 1 else calls
            end["result"] = {"returns": [self._call(*call) for call in made], "wall": 1e-6}
        self.ends.append(end)

    def _call(self, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        if kwargs.get("bad"):
            return {"error": {"type": "ValueError", "message": str(args[0]), "traceback": ""}}
        return {"ok": args[0]}


class World:
    """A core, a hub, and the bytes between them."""

    def __init__(self) -> None:
        self.core = Core("secret", "tag", "hub:1")
        self.hub = Hub()
        self.now = 0.0
        self.up, self.down = b"", b""
        self.connected = False

    def connect(self) -> None:
        if not self.connected:
            self.connected = True
            self.core.connected(self.now)
            self.down = self.hub.connect()

    def cut(self) -> None:
        if self.connected:
            self.connected = False
            self.core.lost()
            self.up, self.down = b"", b""

    def pump(self, portion: int | None = None) -> None:
        """Move some bytes both ways."""
        self.now += 0.01
        if not self.connected:
            return
        self.up += self.core.outgoing(self.now)
        size = len(self.up) if portion is None else portion
        self.hub.hear(self.up[:size])
        self.up = self.up[size:]
        size = len(self.down) if portion is None else portion
        for one in self.core.receive(self.down[:size], self.now):
            one.ticket.deliver(one)
        self.down = self.down[size:]

    def answer(self, which: int, *, twice: bool = False) -> None:
        if self.hub.asked:
            reply = self.hub.answer(which)
            self.down += reply * (2 if twice else 1)

    def settle(self, how: int = 0) -> None:
        """Let everything come to its end."""
        for _ in range(3000):
            self.connect()
            self.pump()
            while self.hub.jobs:
                self.hub.end(0, how)
            for number in range(len(self.hub.asked)):
                self.answer(number)
            if not (self.core.unsafe or self.core._jobs or self.down or self.up):
                return
        raise AssertionError("it never ends")


def calls(values: list[int], **kwargs: Any) -> list[bytes]:
    return [json.dumps([[value], kwargs]).encode() for value in values]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 40)),
        st.tuples(st.just("job"), st.just(0)),
        st.tuples(st.just("pump"), st.one_of(st.none(), st.integers(1, 400))),
        st.tuples(st.just("answer"), st.integers(0, 5)),
        st.tuples(st.just("twice"), st.integers(0, 5)),
        st.tuples(st.just("end"), st.tuples(st.integers(0, 50), st.integers(0, 3))),
        st.tuples(st.just("cut"), st.just(0)),
        st.tuples(st.just("connect"), st.just(0)),
        st.tuples(st.just("drop"), st.integers(0, 50)),
    ),
    max_size=60,
)


def ended(end: dict[str, Any], **result: Any) -> Delivery:
    """Return what comes of a call that is a job of its own."""
    world = World()
    ticket = Ticket()
    found: list[Delivery] = []
    ticket.deliver = found.append  # type: ignore[assignment, method-assign]
    world.core.add_call(SPEC, CallRange(ticket, 0, calls([1])), b'{"data":{"calls":[[[1],{}]]}}')
    world.connect()
    for _ in range(10):
        world.pump()
        if world.hub.jobs:
            assert ticket.parcel is not None
            assert next(iter(world.hub.jobs.values()))["binding"] == {
                "data": {"calls": [[[1], {}]]}
            }
            world.hub.jobs.clear()
            told = {"seq": 1, "job": 1, **end}
            world.hub.ends.append({**told, "result": result} if result else told)
        world.answer(0)
        world.answer(1)
    (one,) = found
    return one


def test_a_call_with_files_is_a_job_whose_end_is_that_of_the_call():
    good = ended({"state": "done"}, returns=[{"ok": 7}], left={"0": ["x"]})
    assert (good.returns[0].ok, good.left, good.job) == (7, ["x"], 1)
    error = {"type": "ValueError", "message": "no", "traceback": ""}
    bad = ended({"state": "failed", "reason": "ValueError: no"}, returns=[{"error": error}])
    assert bad.error is None
    assert bad.returns[0].error
    # It returned, but left no output; or it did not run at all.
    for result in ({"returns": [{"ok": 7}]}, {}):
        lacking = ended({"state": "failed", "reason": "declared output is missing"}, **result)
        assert isinstance(lacking.error, errors.JobFailed)
    assert isinstance(ended({"state": "cancelled"}).error, errors.JobFailed)


class Story:
    """Things that happen, one after the other."""

    def __init__(self) -> None:
        self.world = World()
        self.calls: list[Taken] = []
        self.jobs: list[Taken] = []

    def add(self, count: int) -> None:
        self.calls.append(Taken(count))
        if count:
            self.world.core.add(SPEC, CallRange(self.calls[-1], 0, calls(list(range(count)))))

    def job(self, _: int) -> None:
        self.jobs.append(Taken())
        self.world.core.add_job(b'{"name":"j"}', self.jobs[-1])

    def pump(self, portion: int | None) -> None:
        self.world.pump(portion)

    def answer(self, which: int) -> None:
        self.world.answer(which)

    def twice(self, which: int) -> None:
        self.world.answer(which, twice=True)

    def end(self, how: tuple[int, int]) -> None:
        if self.world.hub.jobs:
            self.world.hub.end(*how)

    def cut(self, _: int) -> None:
        self.world.cut()

    def connect(self, _: int) -> None:
        self.world.connect()

    def drop(self, which: int) -> None:
        if self.calls:
            self.world.core.drop(self.calls[which % len(self.calls)])


@given(STEPS)
def test_whatever_happens_each_call_is_answered_once(steps):
    _each_call_is_answered_once(steps)


@pytest.mark.slow
@settings(max_examples=300)
@given(STEPS)
def test_whatever_happens_often_each_call_is_answered_once(steps):
    _each_call_is_answered_once(steps)


def _each_call_is_answered_once(steps: list[tuple[str, int]]) -> None:
    story = Story()
    story.connect(0)
    for name, value in steps:
        getattr(story, name)(value)
    story.world.settle()
    for ticket in story.calls:
        for at, found in enumerate(ticket.found):
            assert len(found) == 1 if ticket.wanted else len(found) <= 1
            assert all(one == at or isinstance(one, errors.JobFailed) for one in found)
    assert [len(ticket.found[0]) for ticket in story.jobs] == [1] * len(story.jobs)


@given(st.integers(1, 200), st.data())
def test_a_job_that_always_fails_blames_only_the_call_that_does_it(count, data):
    guilty = data.draw(st.integers(0, count - 1))
    world = World()
    ticket = Taken(count)
    world.connect()
    # Known to be quick, so that many go together.
    world.core.add(SPEC, CallRange(Taken(), 0, calls([0])))
    world.settle()
    world.core.add(SPEC, CallRange(ticket, 0, calls(list(range(count)))))

    def kill(which: int, how: int) -> None:
        job = world.hub.jobs[sorted(world.hub.jobs)[which]]
        dies = any(args == [guilty] for args, _ in job["binding"]["data"]["calls"])
        Hub.end(world.hub, which, 2 if dies else 0)

    world.hub.end = kill  # type: ignore[method-assign]
    world.settle()
    for at, (found,) in enumerate(ticket.found):
        if at == guilty:
            assert isinstance(found, errors.JobFailed)
            assert "SIGSEGV" in found.message
        else:
            assert found == at


def test_a_lone_call_goes_at_once_and_alone():
    world = World()
    world.connect()
    world.settle()
    world.core.add(SPEC, CallRange(Taken(), 0, calls([7])))
    world.pump()
    (submit,) = [one for one in world.hub.asked if one["op"] == "submit"]
    assert [job["binding"] for job in submit["jobs"]] == [{"data": {"calls": [[[7], {}]]}}]
    assert len(submit["jobs"][0]["key"]) == 32
    assert submit["jobs"][0]["tag"] == "tag"


def test_calls_of_unknown_length_go_one_by_one_until_the_first_has_returned():
    world = World()
    world.connect()
    world.settle()
    world.core.add(SPEC, CallRange(Taken(1000), 0, calls(list(range(1000)))))
    world.pump()
    (submit,) = [one for one in world.hub.asked if one["op"] == "submit"]
    assert [len(job["binding"]["data"]["calls"]) for job in submit["jobs"]] == [1] * core.PROBES
    assert 0 < world.core.due(world.now) <= core.PROBE_S
    world.now += core.PROBE_S
    world.pump()
    # None has returned: they may be slow, and each should have a core of its own.
    sent = [one for one in world.hub.asked if one["op"] == "submit"][1:]
    assert {len(job["binding"]["data"]["calls"]) for one in sent for job in one["jobs"]} == {1}
    assert sum(len(one["jobs"]) for one in sent) == core.PROBES
    world.now += 6 * core.PROBE_S
    world.answer(0)
    world.pump()
    world.pump()
    assert world.core._kinds[SPEC, 0].away > 500


@pytest.mark.parametrize(
    "each, low, high", [(1e-7, 1000, 12500), (0.001, 40, 50), (0.01, 4, 5), (1.0, 1, 1)]
)
def test_a_job_holds_as_many_calls_as_take_a_moment(each, low, high):
    kind = core.CallQueue(SPEC)
    kind.add(CallRange(Taken(100_000), 0, calls(list(range(100_000)))))
    kind.learn(each * 10, 10, 100)
    assert low <= kind.size(2, 0.0) <= high


def test_large_results_make_small_jobs():
    kind = core.CallQueue(SPEC)
    kind.add(CallRange(Taken(1000), 0, calls(list(range(1000)))))
    kind.learn(1e-6, 1, 1 << 20)
    assert kind.size(2, 0.0) == 1


def test_calls_that_fit_no_message_together_are_parted():
    kind = core.CallQueue(SPEC, fixed=10)
    kind.add(CallRange(Taken(10), 0, [b"x" * (400 << 10)] * 10))
    assert [len(part.calls) for part in kind.take(10)] == [2]


def test_a_submission_that_is_refused_is_the_error_of_the_bad_job_alone():
    world = World()
    world.connect()
    world.settle()
    good, bad = Taken(), Taken()
    world.core.add_job(b'{"name":"good"}', good)
    world.core.add_job(b'{"name":"bad"}', bad)

    def refuse(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["op"] == "submit" and any(
            job["spec"]["name"] == "bad" for job in request["jobs"]
        ):
            return {"error": {"code": "E200", "message": "no", "hint": "mend it"}}
        return Hub._do(world.hub, request)

    world.hub._do = refuse  # type: ignore[method-assign]
    world.settle()
    (error,) = bad.found[0]
    assert isinstance(error, errors.UsageError)
    assert (error.message, error.hint) == ("no", "mend it")
    assert good.found[0][0].state == "done"


def test_a_hub_that_cannot_now_is_asked_again():
    world = World()
    world.connect()
    world.settle()
    ticket = Taken()
    world.core.add(SPEC, CallRange(ticket, 0, calls([1])))
    refusals = iter([True, True])

    def refuse(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["op"] == "submit" and next(refusals, False):
            return {"error": {"code": "E601", "message": "disk full"}}
        return Hub._do(world.hub, request)

    world.hub._do = refuse  # type: ignore[method-assign]
    world.settle()
    assert ticket.found == [[1]]


def test_a_token_that_is_refused_fails_everything():
    world = World()
    world.core.add(SPEC, CallRange(ticket := Taken(3), 0, calls([1, 2, 3])))
    world.connect()
    world.hub._do = lambda _: {"error": {"code": "E500", "message": "wrong token"}}  # type: ignore[method-assign, assignment]
    world.pump()
    world.answer(0)
    world.pump()
    assert isinstance(world.core.refused, errors.Denied)
    assert all(isinstance(found[0], errors.Denied) for found in ticket.found)


def test_dropping_the_only_call_of_a_job_calls_the_job_off():
    world = World()
    world.connect()
    world.settle()
    ticket = Taken()
    world.core.add(SPEC, CallRange(ticket, 0, calls([1])))
    world.pump()
    world.answer(0)
    world.pump()
    world.core.drop(ticket)
    world.settle()
    assert world.hub.cancelled == [1]


def test_dropping_a_call_that_was_not_sent_sends_nothing():
    world = World()
    world.core.add(SPEC, CallRange(ticket := Taken(), 0, calls([1])))
    world.core.drop(ticket)
    world.settle()
    assert world.hub.keys == {}


def test_silence_is_noticed():
    world = World()
    world.connect()
    world.pump()
    assert not world.core.stale(world.now + cores.WAIT_S)
    assert world.core.stale(world.now + cores.SILENCE_S + 1)


def test_what_answers_must_be_a_hub():
    world = World()
    world.core.connected(0.0)
    with pytest.raises(errors.Unavailable, match="404"):
        world.core.receive(b"HTTP/1.1 404 Not Found\r\n\r\n", 0.0)
    world.core.connected(0.0)
    with pytest.raises(errors.Unavailable, match="not a hub"):
        world.core.receive(b"x" * 10_000, 0.0)


def test_a_message_may_arrive_byte_by_byte():
    incoming = codec.Incoming()
    data = GRANTED + codec.frame(b'{"n":1}') + codec.frame(b"{}")
    found = [message for at in range(len(data)) for message in incoming.feed(data[at : at + 1])]
    assert found == [b'{"n":1}', b"{}"]


def test_odd_text_comes_back_whole():
    world = World()
    world.connect()
    world.settle()
    ticket = Taken()
    world.core.add(SPEC, CallRange(ticket, 0, ['[["é\U0001f600\\n"],{}]'.encode()]))
    world.settle()
    assert ticket.found == [["é\U0001f600\n"]]
