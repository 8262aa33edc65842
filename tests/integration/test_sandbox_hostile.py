"""A hostile payload against each sandbox: what is said to be shut is shut, and no more is said.

Each attempt runs through a real starter that has the pilot's own user. Whether it came through is
judged from outside: by what it could print, change, signal or keep running.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import anyio
import pytest

from pilotage.payload.sandbox import KINDS, THREATS, protects, words
from pilotage.run import EndReason, Launch, Started
from tests.rigs.node import hostile, sandbox_users
from tests.rigs.node.sandbox import PROGRAMS, SandboxRig, opened
from tests.rigs.node.sandbox_users import PATIENCE
from tests.suite import system

pytestmark = [pytest.mark.anyio, pytest.mark.needs("root", "setpriv", "useradd")]

#: Apptainer is in no Debian release; where it is installed it needs an image that is not here.
TRIED = [kind for kind in KINDS if kind != "apptainer"]
PROCESSES = 40
DISK = 16 << 20
SCRATCH = 48 << 20


@pytest.fixture(scope="module")
def ward() -> Iterator[sandbox_users.SandboxUsers]:
    system.needs("root", "setpriv", "useradd")
    with sandbox_users.ward() as made:
        yield made


@pytest.fixture(params=TRIED)
def kind(request: pytest.FixtureRequest) -> str:
    system.needs(*PROGRAMS.get(request.param, ()))
    return str(request.param)


@pytest.fixture
def scene(ward, kind, monkeypatch):
    sandbox_users.shift(monkeypatch, ward)
    return lambda: opened(ward, kind)


async def reads_the_token(scene: SandboxRig, threat: str) -> bool:
    said = await scene.said(await scene.attempt(threat, scene.facts()))
    return any(line.get("got") == scene.ward.token for line in said)


async def reads_or_changes_files(scene: SandboxRig, threat: str) -> bool:
    note = scene.ward.note
    scene.ward.write(note, "the pilot's own")
    said = await scene.said(await scene.attempt(threat, scene.facts(files=[str(note)])))
    untouched = note.exists() and note.read_text() == "the pilot's own"
    return not untouched or any("the pilot's own" in line.get("read", "") for line in said)


async def signals_the_pilot(scene: SandboxRig, threat: str) -> bool:
    scene.ward.marks.unlink(missing_ok=True)
    other = scene.launch("sleep", "60", owner="two")
    await scene.starter.start([other])
    with anyio.fail_after(PATIENCE):
        begun = [one.pid for one in await anext(scene.starter) if isinstance(one, Started)]
    facts = scene.facts(pids=[scene.pilot, *begun], all=scene.kind != "none")
    await scene.said(await scene.attempt(threat, facts))
    await anyio.sleep(0.2)
    return scene.ward.marks.exists() or other.key in scene.endings


async def fills_the_disk(scene: SandboxRig, threat: str) -> bool:
    """Come through if the disk is full, or if another folder takes more than its size."""
    own = scene.ward.work / "jobs" / "1.1"
    places = ["/tmp", "/dev/shm", "/var/tmp", str(own)]
    facts = scene.facts(places=places, pause=0.03)
    limits = {"disk": DISK}
    one = await scene.attempt(threat, facts, memory=SCRATCH, limits=limits)
    lowest = await lowest_room(scene, one)
    written = {
        line["place"]: line["written"] for line in await scene.said(one) if "written" in line
    }
    if scene.kind != "none":
        assert scene.endings[one.key].reason is EndReason.DISK, scene.endings[one.key]
    elsewhere = [size for place, size in written.items() if place != str(own)]
    return lowest < hostile.SPARE_BYTES or any(size > SCRATCH for size in elsewhere)


async def lowest_room(scene: SandboxRig, one: Launch) -> int:
    lowest = 1 << 60
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scene.end_of, one)
        while one.key not in scene.endings:
            room = os.statvfs(scene.ward.work)
            lowest = min(lowest, room.f_bavail * room.f_bsize)
            await anyio.sleep(0.01)
    return lowest


async def starves_others_of_processes(scene: SandboxRig, threat: str) -> bool:
    limits = {"processes": PROCESSES}
    one = await scene.attempt(threat, scene.facts(), limits=limits)
    forked = next(line["forked"] for line in await scene.said(one, "forked") if "forked" in line)
    # A moment, since without a sandbox limits are set on a process that has begun.
    forks_too = ["sh", "-c", "sleep 0.3; true & wait $! && echo fine"]
    other = scene.launch(*forks_too, owner="two", limits=limits)
    await scene.starter.start([other])
    await scene.end_of(other)
    await scene.starter.stop(one.key, "enough", grace=0)
    await scene.end_of(one)
    return forked > PROCESSES or "fine" not in scene.output(other)


async def outlives_its_kill(scene: SandboxRig, threat: str) -> bool:
    beats = scene.ward.work / "jobs" / "1.1" / "beats"
    one = await scene.attempt(threat, scene.facts(beats=str(beats)))
    await scene.said(one, "ready")
    await scene.starter.stop(one.key, "enough", grace=0.2)
    assert (await scene.end_of(one)).reason is EndReason.STOPPED
    before = beats.stat().st_size
    await anyio.sleep(0.3)
    return beats.stat().st_size > before


async def reads_another_payload(scene: SandboxRig, threat: str) -> bool:
    argv = ["sh", "-c", "cat secret; sleep 60"]
    other = scene.launch(*argv, owner="two", files={"secret": "of another user"})
    await scene.starter.start([other])
    await scene.until(lambda: "of another user" in scene.output(other))
    files = [f"{other.dir}/secret", f"{other.dir}/stdout"]
    said = await scene.said(await scene.attempt(threat, scene.facts(files=files)))
    return any("of another user" in line.get("read", "") for line in said)


ATTEMPTS = {
    "token": reads_the_token,
    "environment": reads_the_token,
    "memory": reads_the_token,
    "files": reads_or_changes_files,
    "signal": signals_the_pilot,
    "disk": fills_the_disk,
    "forks": starves_others_of_processes,
    "outlive": outlives_its_kill,
    "others": reads_another_payload,
}


@pytest.mark.parametrize("threat", THREATS)
async def test_an_attempt_comes_through_only_where_that_is_said(scene, kind, threat):
    async with scene() as made:
        came_through = await ATTEMPTS[threat](made, threat)
    assert came_through is not protects(kind)[threat]


def test_every_threat_is_tried():
    assert set(ATTEMPTS) == set(THREATS) == set(hostile.ATTEMPTS)


def test_no_sandbox_says_what_it_leaves_open():
    said = words("none")
    for threat, shut in protects("none").items():
        assert (THREATS[threat] in said) is not shut
    assert not all(protects("none").values())
