"""What a site says is not to be trusted, and what is asked of many is asked at once."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import os
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import uvloop

from pilotage.base import errors
from pilotage.batch import job as guest
from pilotage.batch.commands import SiteCommands
from pilotage.batch.connection import SiteConnection
from pilotage.batch.data import SiteStaging
from pilotage.batch.job import BatchJob, ItemFolder
from pilotage.batch.login import HelperLink
from pilotage.batch.model import SiteSettings
from pilotage.batch.offer import place_of
from pilotage.batch.orders import HeldJobs
from pilotage.batch.place import BatchPlace
from pilotage.batch.submission import ArrayTask, Submission, TaskEnd
from pilotage.batch.system.model import BatchOrder
from pilotage.job import moves
from pilotage.job.model import Allocation, Binding, Command, JobSpec, Resources, Script
from pilotage.match import submission, turn
from pilotage.match.classes import QueuedJob
from pilotage.match.cluster import Clusters
from pilotage.match.negotiate import Matcher
from pilotage.match.place import Lease, Stop
from pilotage.match.share import Shares
from pilotage.node.login.files import Files
from pilotage.node.login.orders import Orders
from pilotage.run import launch
from pilotage.run import outcome as run_outcome

KEY = "plaaaaaaaaaaaaa"


class Mouth:
    """Where questions go that nobody reads."""

    def write(self, data: bytes) -> None:
        del data

    async def drain(self) -> None:
        return

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        return


def spoken(*frames: bytes) -> HelperLink:
    reader = asyncio.StreamReader()
    for frame in frames:
        reader.feed_data(len(frame).to_bytes(4, "big") + frame)
    reader.feed_eof()
    return HelperLink("bed", reader, cast("asyncio.StreamWriter", Mouth()), lambda _: None)


@pytest.mark.parametrize(
    "frame",
    [b"[1]", b"5", b"[" * 200_000, b'{"news":5}', b'{"news":[1]}', b'{"news":[{"name":[]}]}'],
    ids=["list", "number", "deep", "no news", "odd news", "odd name"],
)
async def test_a_frame_that_is_none_ends_the_connection_and_nothing_else(frame: bytes) -> None:
    with pytest.raises(errors.Unavailable):
        await spoken(frame).listen()


@pytest.mark.parametrize(
    "answer, error",
    [
        (b'{"n":1,"ok":"x"}', errors.Unsure),
        (b'{"n":1,"error":"x","kind":[1]}', errors.PilotageError),
        (b'{"n":[1],"ok":{}}', errors.Unsure),
    ],
)
async def test_an_answer_that_is_none_is_doubt(
    answer: bytes, error: type[errors.PilotageError]
) -> None:
    wire = spoken(answer)
    asked = asyncio.create_task(wire.ask("run", {}, 5.0))
    await asyncio.sleep(0)
    await wire.listen()
    with pytest.raises(error):
        await asked


# -- what is asked of the hand -------------------------------------------------------------------


class Login:
    """A login node without a connection: the hand's own code, and what was asked of it."""

    name = "c"

    def __init__(self, root: Path) -> None:
        self.asked: list[str] = []
        orders, files = Orders(str(root)), Files(str(root))
        self._ops = {"fence": orders.fence, "read": files.read, "tails": files.tails}

    async def call(self, op: str, **values: Any) -> dict[str, Any]:
        self.asked.append(op)
        return self._ops[op](values)


def sent(root: Path, count: int) -> Submission:
    order = BatchOrder(key=KEY, script="", folder=f"{root}/s/{KEY}", count=count)
    works = {place: ArrayTask(place, job=place + 1, attempt=1) for place in range(count)}
    return Submission(1, KEY, "slurm", order, works=works)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path))


async def test_some_of_a_large_array_are_fenced_by_one_question(root: Path) -> None:
    login = Login(root)
    errands = SiteCommands(
        cast("SiteConnection", login), lambda _: pytest.fail("no batch system is asked")
    )
    free = await errands.fence(sent(root, 500), range(1, 500))
    assert free == set(range(1, 500))
    assert login.asked == ["fence"]
    assert not (root / "s" / KEY / "0.claim").exists()


async def test_evidence_of_any_length_is_read_whole(root: Path) -> None:
    (root / "news").mkdir()
    files = {f"f{number:09}": {"size": 1, "sha256": "0" * 64} for number in range(100_000)}
    body = {"end": {"key": "1.1"}, "outputs": {"out": {"files": files}}}
    (root / "news" / f"{KEY}.0.ended").write_text(json.dumps(body))
    errands = SiteCommands(
        cast("SiteConnection", Login(root)), lambda _: pytest.fail("nobody is asked")
    )
    assert await errands.evidence(sent(root, 1), ArrayTask(0)) == body


async def test_half_of_evidence_is_no_lack_of_evidence(tmp_path: Path) -> None:
    class Short(Login):
        async def call(self, op: str, **values: Any) -> dict[str, Any]:
            if op == "tails":
                return {"tails": [""]}
            half = {"data": base64.b64encode(b'{"end":').decode(), "size": 100}
            return {"files": dict.fromkeys(values["paths"], half)}

    errands = SiteCommands(
        cast("SiteConnection", Short(tmp_path)), lambda _: pytest.fail("nobody is asked")
    )
    with pytest.raises(errors.Unavailable, match="cannot be read to its end"):
        await errands.evidence(sent(tmp_path, 1), ArrayTask(0))


# -- whose files ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "facts",
    [
        {"inputs": (".pilotage/admin-token",)},
        {"inputs": ("link",)},
        {"base": "/", "inputs": ("etc/passwd",)},
        {"outputs": {"out": ".pilotage/admin-token"}},
        {"base": "/etc", "outputs": {"out": "cron.d/x"}},
        {"recipe": Script(file="{root}/.pilotage/admin-token")},
    ],
)
def test_jobs_of_others_have_no_hand_on_files_of_the_hub(root: Path, facts: dict[str, Any]) -> None:
    secret = root / ".pilotage" / "admin-token"
    secret.parent.mkdir()
    secret.write_text("secret")
    (root / "link").symlink_to(secret)
    (root / "plain").write_text("plain")
    if recipe := facts.get("recipe"):
        facts = {"recipe": Script(file=recipe.file.format(root=root))}
    mine = guest_of(1)
    mine.spec = msgspec.structs.replace(spec(site="c", inputs=("plain",)), **facts)
    mine.base, mine.bounds = mine.spec.base or str(root), ""
    room, place = ItemFolder("/site", KEY, 0), launch.LaunchContext(str(root))
    guest.wanted(mine)
    guest.order(mine, room, SiteSettings(batch="slurm"), place)
    mine.bounds = str(root)
    with pytest.raises(errors.Denied, match="may not name"):
        [guest.wanted(mine), guest.order(mine, room, SiteSettings(batch="slurm"), place)]


# -- mounted data --------------------------------------------------------------------------------


def test_what_a_job_left_is_published_beside_what_is_there_and_as_often_as_need_be(
    root: Path,
) -> None:
    base, one = root / "project", guest_of(1)
    (base / "folder").mkdir(parents=True)
    (base / "folder" / "before").write_text("mine")
    one.base = str(base)
    one.outputs = {name: f"{base}/{name}" for name in ("file", "folder", "new/deep")}
    carry = carrier(Login(root), root / "state")
    left = carry._folder(one)
    for name in ("folder", "new/deep"):
        (left / name).mkdir(parents=True)
        (left / name / "after").write_text("left")
    (left / "file").write_text("left")
    facts: dict[str, Any] = {name: {"size": 4} for name in one.outputs}
    for _ in range(2):
        carry._publish(one, facts)
        found = {str(file.relative_to(base)) for file in base.rglob("*") if file.is_file()}
        assert found == {"file", "folder/before", "folder/after", "new/deep/after"}
        assert (base / "folder" / "before").read_text() == "mine"
        assert (base / "file").stat().st_nlink == 2
    (base / "file").unlink()
    (base / "file").mkdir()
    with pytest.raises(errors.Conflict, match="in the way"):
        carry._publish(one, facts)


# -- many jobs -----------------------------------------------------------------------------------


def guest_of(job: int) -> BatchJob:
    return BatchJob(moves.Claim(job, 1, 1, "{}", "", 0, ""), spec(site="c"), Binding(), "/base")


def writing(root: Path, count: int, text: bytes) -> list[tuple[BatchJob, ItemFolder]]:
    """Have jobs that wrote something at the site."""
    some = [(guest_of(job), ItemFolder(str(root), KEY, job)) for job in range(1, count + 1)]
    for _, room in some:
        Path(room.run).mkdir(parents=True)
        Path(room.run, "stdout").write_bytes(text)
    return some


def carrier(login: Login, state: Path) -> SiteStaging:
    nobody = cast("Any", None)
    return SiteStaging(cast("SiteConnection", login), nobody, state, nobody, nobody, nobody)


async def test_what_many_jobs_write_is_asked_for_together(root: Path) -> None:
    text = b"line\n" * 10_000
    some = writing(root, 200, text)
    login, state = Login(root), root / "state"
    await carrier(login, state).logs(some)
    # Each question brings a piece of 64 jobs, and there may be something left of any.
    assert len(login.asked) <= 4 * (1 + math.ceil(len(text) / ((1 << 20) // 64)))
    found = [*state.glob("jobs/*/*/stdout")]
    assert len(found) == 200
    assert {file.read_bytes() for file in found} == {text}
    login.asked.clear()
    await carrier(login, state).logs(some)
    assert len(login.asked) == 4


async def test_what_cannot_be_kept_is_not_asked_for_again_and_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_outcome, "write_output", lambda *_: None)
    login = Login(root)
    await carrier(login, root / "state").logs(writing(root, 1, b"x" * (3 << 20)))
    assert len(login.asked) == 1


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_who_asks_a_program_that_has_died_is_told_that_nothing_was_sent(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def ask() -> None:
        program = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
        assert program.stdin is not None
        assert program.stdout is not None
        program.kill()
        await program.wait()
        wire = HelperLink("bed", program.stdout, program.stdin, lambda _: None)
        with pytest.raises(errors.Unavailable):
            await wire.ask("hello", {}, 5.0)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(ask())


def test_many_jobs_are_called_off_at_once() -> None:
    direct = BatchPlace.__new__(BatchPlace)
    direct._held = HeldJobs(lambda: None)
    direct._held.jobs = {(job, 1): guest_of(job) for job in range(10_000)}
    begun = time.process_time()
    direct._stop(Stop(job, 1, "cancelled") for job in range(10_000))
    assert len(direct._held.stops) == 10_000
    assert time.process_time() - begun < 1


async def test_what_nobody_foresaw_ends_a_job_with_the_reason() -> None:
    class Broken:
        async def close(self, *_: object) -> None:
            raise RuntimeError("can't start new thread")

    direct = BatchPlace.__new__(BatchPlace)
    direct._held, one = HeldJobs(lambda: None), guest_of(7)
    direct._results = cast("Any", Broken())
    await direct._close(one, ItemFolder("/", "k", 0), TaskEnd())
    ((ended, found),) = direct._held.ends
    assert (ended, found.ok) == (one, False)
    assert "can't start new thread" in found.message


# -- which jobs go to a queue --------------------------------------------------------------------


def spec(**facts: Any) -> JobSpec:
    return JobSpec(Command(("true",)), name="one", **facts)


def test_a_job_with_an_image_may_go_to_the_queue_of_its_site() -> None:
    queue = place_of("c", 1, SiteSettings(batch="slurm", container="apptainer"))
    asked = spec(site="c", image="docker.io/library/python:3.12")
    assert Clusters().of(asked, "me").accepts(queue.attributes)
    assert not Clusters().of(spec(image=asked.image), "me").accepts(queue.attributes)


def test_a_job_of_several_nodes_is_for_queues_alone() -> None:
    queue = place_of("c", 1, SiteSettings(batch="slurm"))
    cluster = Clusters().of(spec(site="c", allocation=Allocation(nodes=4, tasks=2)), "me")
    assert cluster.accepts(queue.attributes)
    assert not cluster.accepts({"site": "c", "cpus": 64})
    assert cluster.cpus == 8


def test_who_waits_in_a_batch_queue_is_not_charged_for_it() -> None:
    shares = Shares(3600.0, {})
    matcher = Matcher(shares)
    queue = place_of("c", 1, SiteSettings(batch="slurm"))
    queue.taking = True
    matcher.join(queue)
    cluster = matcher.clusters.of(spec(site="c", resources=Resources(cpus=4)), "me")
    for job in (1, 2):
        matcher.add(QueuedJob(job, 0, "me", cluster, "", 0.0), 0.0)
    for picked in matcher.pick(queue, 0.0):
        matcher.grant(queue, picked, Lease(picked.job, 1, 1, 0, 0.0))
    begun = shares.total("me")
    turn.charge_running(matcher, 86_400.0)
    assert shares.total("me") == begun
    # One ran for a minute in the end, the other was called off before it began.
    matcher.free(queue, [(1, 60.0), (2, None)], 86_400.0)
    assert shares.total("me") == pytest.approx(4 * 60.0)


def test_several_nodes_without_a_site_are_refused() -> None:
    with pytest.raises(errors.BadRule, match="name its `site`"):
        submission.check_spec(spec(allocation=Allocation(tasks=2)))
