"""Data that a job elsewhere mounts, with and without a container, as a user without rights."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest

from pilotage.data.export import Exports, lay, take
from pilotage.data.export.sandbox import ExportKeys
from pilotage.node import batchjob
from tests.rigs.node import boxed, sandbox_users, sftp
from tests.suite import system

NEEDS = ("root", "setpriv", "useradd", "sshfs", "fusermount3", "fuse", "bwrap", "sshd")
pytestmark = [pytest.mark.anyio, pytest.mark.needs(*NEEDS)]
_numbers = iter(range(1000))


@pytest.fixture(scope="module")
def ward():
    system.needs(*NEEDS)
    with sandbox_users.ward() as made:
        code = made.starter().parent
        shutil.copytree(Path(batchjob.__file__).parent, code / "single")
        shutil.copy(str(boxed.__file__), code)
        yield made


@pytest.fixture(scope="module")
def busybox(ward, needs) -> str:
    """Make an image of a single program in the storage of the user."""
    needs("podman", "busybox", "newuidmap", "catatonit", "tar")
    tree, archive = ward.root / "image", ward.root / "image.tar"
    (tree / "bin").mkdir(parents=True)
    shutil.copy(system.find("busybox") or "", tree / "bin" / "busybox")
    (tree / "bin" / "sh").symlink_to("busybox")
    run("tar", "-C", str(tree), "-cf", str(archive), ".")
    run(*ward.command("podman", "--log-level=error", "import", str(archive), "pilotage-test"))
    return "localhost/pilotage-test"


def run(*argv: str) -> str:
    """Run a program; what podman leaves behind would hold on to a pipe."""
    with tempfile.TemporaryFile() as said:
        subprocess.run(argv, check=True, cwd="/", stdout=said, stderr=said)
        said.seek(0)
        return said.read().decode()


class Lab:
    """A sandbox on this machine, and the folder of an item on the node."""

    def __init__(self, ward: sandbox_users.SandboxUsers, exports: Exports, number: int) -> None:
        self.ward = ward
        self.exports = exports
        self.box = ward.root / f"box{number}"
        self.area = ward.work / f"s{number}" / "0"
        self.data = self.area / "data"
        self.item: dict[str, Any] = {}

    async def furnish(self, *argv: str, **sandbox: str) -> None:
        self.box.mkdir()
        source = self.ward.root / "raw"
        source.write_text("hello\n")
        access = await self.exports.open("1", lay(self.box, {"raw": source}))
        self.area.mkdir(parents=True)
        os.chown(self.area, self.ward.uid, -1)
        launch: dict[str, Any] = {"key": "1.1", "argv": argv, "env": {"PATH": "/bin:/usr/bin"}}
        launch |= {"dir": f"{self.area}/run", "cwd": str(self.data), "sandbox": sandbox}
        self.item = {"launch": launch, "mount": sftp.order(access, path=str(self.data))}

    @asynccontextmanager
    async def begun(self, **env: str) -> AsyncIterator[anyio.abc.Process]:
        code = self.ward.root / "code"
        program = (sandbox_users.PYTHON, str(code / "boxed.py"), str(code), str(self.area))
        more = [f"{name}={value}" for name, value in env.items()]
        argv = self.ward.command("/usr/bin/env", *more, *program)
        async with await anyio.open_process(argv, cwd="/", stderr=None) as process:
            assert process.stdin is not None
            await process.stdin.send(json.dumps(self.item).encode())
            await process.stdin.aclose()
            yield process

    async def run(self, **env: str) -> dict[str, Any]:
        async with self.begun(**env) as process:
            return await told(process)

    @property
    def mounted(self) -> bool:
        return str(self.area) in Path("/proc/self/mountinfo").read_text()

    @property
    def clean(self) -> bool:
        """Tell whether neither a mount nor a key is left."""
        return not self.mounted and not self._keys()

    def _keys(self) -> list[Path]:
        """Return the folders of keys of this user; those of others come and go."""
        found = []
        for path in Path("/tmp").glob("pilotage-mount-*"):
            with suppress(FileNotFoundError):
                if path.stat().st_uid == self.ward.uid:
                    found.append(path)
        return found

    def signal(self, number: signal.Signals, *, program: bool) -> None:
        """Signal the program of the item, or all other processes of its user."""
        for pid in sandbox_users._processes(self.ward.uid):
            if (b"boxed.py" in Path(f"/proc/{pid}/cmdline").read_bytes()) is program:
                os.kill(pid, number)

    def sweep(self) -> None:
        """Remove what a program that was killed could not."""
        sandbox_users._kill_all(self.ward.uid)
        for left in self._keys():
            shutil.rmtree(left)
        if self.mounted:
            run("umount", "--lazy", str(self.data))


async def told(process: anyio.abc.Process) -> dict[str, Any]:
    assert process.stdout is not None
    with anyio.fail_after(sandbox_users.PATIENCE):
        said = b"".join([chunk async for chunk in process.stdout])
    return dict(json.loads(said))


async def until(test: Callable[[], bool]) -> None:
    with anyio.fail_after(sandbox_users.PATIENCE):
        while not test():  # noqa: ASYNC110 - other processes tell nobody
            await anyio.sleep(0.02)


@pytest.fixture
async def lab(ward):
    async with Exports() as exports:
        made = Lab(ward, exports, next(_numbers))
        yield made
    made.sweep()


async def test_data_is_there_while_the_job_runs(lab):
    await lab.furnish("sh", "-c", "cat raw; id -u; echo made > out; mkdir d; echo x > raw")
    said = await lab.run()
    assert said["out"].split() == ["hello", str(lab.ward.uid)]
    assert "not permitted" in said["err"]
    assert said["left"] == ["d", "out", "raw"]
    assert lab.clean
    await lab.exports.close("1")
    assert take(lab.box, "out").read_text() == "made\n"
    assert take(lab.box, "d").is_dir()
    assert (lab.ward.root / "raw").read_text() == "hello\n"


@pytest.mark.parametrize("kind", ["bubblewrap", "podman"])
async def test_data_is_seen_in_a_sandbox_of_this_machine(lab, kind, needs):
    needs(*{"bubblewrap": ["bwrap", "prlimit"], "podman": ["podman", "catatonit"]}[kind])
    await lab.furnish("sh", "-c", "pwd; cat raw; echo made > out", kind=kind)
    said = await lab.run()
    assert said["out"].split() == [str(lab.data), "hello"], said
    assert (lab.box / "out").read_text() == "made\n"
    assert lab.clean


@pytest.mark.parametrize("shared", [False, True])
async def test_data_is_seen_in_a_container(lab, busybox, shared):
    """Podman keeps a view of mounts for all containers of a user, which may not see ours."""
    podman = lab.ward.command("podman")
    run(*podman, "system", "migrate")
    run("mount", "--make-shared" if shared else "--make-private", str(lab.ward.work))
    run(*podman, "unshare", "true")
    script = "pwd; busybox cat raw; busybox grep CapEff /proc/self/status; echo made > out"
    await lab.furnish("sh", "-c", f"{script}; echo x > raw", kind="podman", image=busybox)
    said = await lab.run()
    run("mount", "--make-private", str(lab.ward.work))
    assert said["out"].split() == [str(lab.data), "hello", "CapEff:", "0" * 16], said
    assert "not permitted" in said["err"]
    assert said["left"] == ["out", "raw"]
    assert (lab.box / "out").read_text() == "made\n"
    # Nothing went to the folder beneath, where nobody would look for it.
    assert not list(lab.area.glob("data/*"))
    assert str(lab.area) not in run(*podman, "unshare", "cat", "/proc/self/mountinfo")
    assert lab.clean


async def test_a_polite_signal_leaves_the_data_to_the_payload(lab):
    """The batch system sends it to all processes of a job."""
    script = "trap 'cat raw > late; exit 3' TERM; echo > begun; while :; do sleep 0.05; done"
    await lab.furnish("sh", "-c", script)
    async with lab.begun() as process:
        await until((lab.box / "begun").exists)
        lab.signal(signal.SIGTERM, program=False)
        said = await told(process)
    assert said["exit"] == 3
    assert (lab.box / "late").read_text() == "hello\n"
    assert lab.clean


async def test_the_mount_does_not_outlive_the_program(lab):
    await lab.furnish("sleep", "60")
    async with lab.begun():
        await until(lambda: lab.mounted)
        lab.signal(signal.SIGKILL, program=True)
        await until(lambda: not lab.mounted)
        lab.sweep()


async def test_an_export_that_is_closed_ends_in_errors_and_not_in_waiting(lab):
    script = "echo > begun; while cat raw > /dev/null; do sleep 0.05; done; exit 9"
    await lab.furnish("sh", "-c", script)
    async with lab.begun() as process:
        await until((lab.box / "begun").exists)
        await lab.exports.close("1")
        said = await told(process)
    assert said.get("exit") == 9 or "error" in said
    assert lab.clean


async def test_what_cannot_be_mounted_is_said(lab):
    await lab.furnish("true")
    way = lab.item["mount"]
    other = ExportKeys.make("ssh-keygen")
    for change, words in (
        ({"port": 1}, "cannot be mounted"),
        ({"known_hosts": other.known}, "cannot be mounted"),
        ({"key": other.client}, "cannot be mounted"),
        ({"token": "0" * 32}, "cannot be mounted"),
        ({"token": "0 -oProxyCommand=id"}, "token"),
        ({"user": "-oProxyCommand=id"}, "user"),
        ({"host": "-oProxyCommand=id"}, "not understood"),
        ({"host": "a b"}, "host"),
        ({"known_hosts": "* ssh-ed25519 AAAA"}, "known_hosts"),
        ({"port": 0}, "port"),
        ({"options": ["ssh_command=/bin/sh"]}, "option"),
        ({"options": ["auto_cache,ssh_command=id"]}, "option"),
        ({"path": "/tmp/elsewhere"}, "not in the folder"),
        ({"path": f"{lab.area}/../x"}, "not in the folder"),
    ):
        lab.item["mount"] = {**way, **change}
        said = await lab.run()
        assert words in said.get("error", ""), (change, said)
        assert lab.clean, change
    lab.item["mount"] = way
    assert "no `sshfs`" in (await lab.run(PATH="/nowhere"))["error"]
