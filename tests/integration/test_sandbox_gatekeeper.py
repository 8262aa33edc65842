"""The gatekeeper: what it does for its caller, and what it refuses."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.payload.sandbox.rule import GATEKEEPER
from pilotage.run import Launch
from tests.rigs.node import sandbox_users
from tests.rigs.node.sandbox import opened
from tests.suite import system

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.needs("root", "setpriv", "useradd", "sudo", "visudo"),
]


@pytest.fixture(scope="module")
def ward() -> Iterator[sandbox_users.SandboxUsers]:
    system.needs("root", "setpriv", "useradd", "sudo", "visudo")
    with sandbox_users.ward() as made:
        yield made


def call(argv: list[str], wish: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        input=wish,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        timeout=sandbox_users.PATIENCE,
    )


def ask(
    ward: sandbox_users.SandboxUsers, *words: str, wish: str = ""
) -> subprocess.CompletedProcess[str]:
    return call(ward.command("sudo", "-n", "--", GATEKEEPER, *words), wish)


def wish_for(folder: Path) -> str:
    wish = {"dir": str(folder), "cwd": "/", "argv": ["id"], "env": {}, "limits": {}}
    return json.dumps(wish) + "\n"


BEYOND = ["run root", "run", "shell {one}", "run {one} x", "sweep {me}", "run {one};id", ""]


@pytest.mark.parametrize("words", BEYOND)
def test_sudo_lets_nothing_beyond_the_rule_through(ward, words):
    refused = ask(ward, *words.format(one=ward.one, me=ward.name).split())
    assert refused.returncode == 1
    assert "password is required" in refused.stderr


@pytest.mark.parametrize("words", ["run root", "run daemon", "run", "shell x", "run no-such-user"])
def test_it_refuses_also_what_a_wide_rule_lets_through(ward, words):
    refused = call(
        ["env", f"SUDO_UID={ward.uid}", f"SUDO_GID={ward.uid}", GATEKEEPER, *words.split()]
    )
    assert refused.returncode == 126
    assert "pilotage-gatekeeper:" in refused.stderr


def test_it_is_not_for_root(ward):
    assert "not by root" in call([GATEKEEPER, "run", ward.one]).stderr


@pytest.mark.parametrize("name", ["/etc", "/root", "link"])
def test_a_directory_that_is_not_the_callers_stays_untouched(ward, name):
    folder = ward.work / name
    if name == "link":
        folder.symlink_to("/etc")
    before = folder.stat()
    refused = ask(ward, "run", ward.one, wish=wish_for(folder))
    assert refused.returncode == 126
    after = folder.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (
        before.st_uid,
        before.st_gid,
        before.st_mode,
    )


@pytest.mark.parametrize("wish", ["", "no JSON\n", "[]\n", "{}\n", '{"dir": 7}\n'])
def test_nonsense_is_refused(ward, wish):
    refused = ask(ward, "run", ward.one, wish=wish)
    assert refused.returncode == 126
    assert "Traceback" not in refused.stderr


def test_what_is_left_of_a_user_can_be_killed(ward):
    uid = pwd.getpwnam(ward.one).pw_uid
    argv = ["setpriv", "--reuid", ward.one, "--clear-groups", "sleep", "60"]
    with subprocess.Popen(argv) as sleeper:
        while Path(f"/proc/{sleeper.pid}").stat().st_uid != uid:
            time.sleep(0.01)
        assert ask(ward, "sweep", ward.one).returncode == 0
        assert sleeper.wait(timeout=sandbox_users.PATIENCE) == -signal.SIGKILL


async def test_payloads_that_name_no_user_get_one_each(ward, monkeypatch):
    sandbox_users.shift(monkeypatch, ward)
    async with opened(ward, "user") as made:
        launches = [made.launch("sh", "-c", "id -un; sleep 60", box={"user": ""}) for _ in range(2)]
        await made.starter.start(launches)
        await made.until(lambda: all(made.output(one) for one in launches))
        assert {made.output(one).strip() for one in launches} == {ward.one, ward.two}
        third, end = await made.run("id", "-un", box={"user": ""})
        assert end.exit == 1
        assert "no user left" in made.output(third, "stderr")
        await made.starter.stop(launches[0].key, "enough", grace=0)
        await made.end_of(launches[0])
        third, end = await made.run("id", "-un", box={"user": ""})
        assert made.output(third) == made.output(launches[0])


async def test_no_file_gives_the_pilots_rights_away(ward, monkeypatch):
    sandbox_users.shift(monkeypatch, ward)
    async with opened(ward, "user") as made:
        one, end = await made.run(
            "sh", "-c", "cp /bin/sh mine; chmod 6755 mine; ln -s /etc/shadow s"
        )
        assert end.ok
    check_handed_over(one, ward)


def check_handed_over(one: Launch, ward: sandbox_users.SandboxUsers) -> None:
    mine = Path(one.dir, "mine").stat()
    assert mine.st_uid == ward.uid
    assert not mine.st_mode & (stat.S_ISUID | stat.S_ISGID)
    assert Path("/etc/shadow").owner() == "root"


@pytest.fixture
def temporary(ward) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="pilotage-", dir="/tmp"))
    folder.chmod(0o755)
    os.chown(folder, ward.uid, -1)
    yield folder
    shutil.rmtree(folder)


async def test_its_temporary_files_are_private_wherever_its_directory_is(
    ward, temporary, monkeypatch
):
    sandbox_users.shift(monkeypatch, ward)
    place, own = str(temporary / "job"), Path(f"/tmp/{temporary.name}-own")
    async with opened(ward, "user") as made:
        script = f"ls /tmp; pwd; echo x > {own}; cp {own} y"
        one, end = await made.run("sh", "-c", script, dir=place, cwd=place)
        assert end.ok, made.output(one, "stderr")
    assert made.output(one).split() == [temporary.name, place]
    assert made.output(one, "y") == "x\n"
    assert not made.output(made.launch(dir="/tmp"), own.name)


def test_the_printed_rule_is_one_that_sudo_takes():
    command = [sys.executable, "-m", "pilotage.payload.sandbox"]
    printed = call([*command, "rule", "pilot", "one"])
    assert "OK" in call(["visudo", "-cf", "-"], printed.stdout).stdout
    assert call([*command, "gatekeeper"]).stdout.startswith("#!/usr/bin/python3 -I\n")
