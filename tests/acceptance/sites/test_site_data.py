"""The data of jobs at a site, and the images that they run in: brought once, or mounted."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.job.model import State
from testbed.ssh import Sshd
from tests.rigs.project.command_line import CommandLine, by_ssh
from tests.suite import system

pytestmark = pytest.mark.slow

IMAGE = f"pilotage-test-sites-{os.getpid()}"
PODMAN = ("podman", "runc", "busybox", "newuidmap", "catatonit")
SIZE = 50_000_000
BOOK = f"""
[rule.many]
files = "cards/*.in"
site = "cluster"
via = "sbatch"
run = ["sh", "-c", "wc -c < {{base}}/big/one.bin"]
inputs = ["big/*.bin"]
sweep = {{level = {{start = 1, stop = 100, step = 1}}}}

[rule.look]
files = "raw/*.txt"
site = "cluster"
run = "sbatch"
data = "mounted"
script = '''
stat --file-system --format=%T .
cat "$PILOTAGE_PATH" maps/*.map > "seen/$PILOTAGE_STEM"
echo > "$PILOTAGE_PATH" || echo "cannot write"
'''
cwd = "{{base}}"
inputs = ["maps/*.map"]
outputs = {{seen = "seen/{{stem}}"}}

[rule.late]
files = "late/*.txt"
site = "cluster"
run = "sbatch"
data = "mounted"
script = '''
touch ~/begun-late
while [ ! -e ~/gate-late ]; do sleep 0.1; done
cat "$PILOTAGE_PATH" > "seen/$PILOTAGE_STEM"
'''
cwd = "{{base}}"
outputs = {{seen = "seen/{{stem}}"}}

[rule.boxed]
files = "boxed/*.txt"
site = "cluster"
via = "sbatch"
data = "mounted"
image = "file:images/tools.tar"
run = ["sh", "-c", "busybox grep CapEff /proc/self/status; busybox cat {{path}} > seen/{{stem}}"]
cwd = "{{base}}"
outputs = {{seen = "seen/{{stem}}"}}

[rule.own]
files = "own/*.txt"
site = "cluster"
via = "sbatch"
image = "local:{IMAGE}"
run = ["sh", "-c", "busybox cat {{path}} > seen/{{stem}}; busybox ls /bin"]
cwd = "{{base}}"
outputs = {{seen = "seen/{{stem}}"}}
"""
#: Keeps what comes in for the cache, and counts what podman is asked.
COPIES = """#!/bin/sh
case " $* " in
*" receive "*) tee -a {log} | /usr/bin/python3 "$@" ;;
*) PATH={shim}:$PATH; export PATH; exec /usr/bin/python3 "$@" ;;
esac
"""
COUNTS = '#!/bin/sh\necho "$1" >> {log}\nexec /usr/bin/podman "$@"\n'


@pytest.fixture(scope="module")
def shim(login: Sshd) -> Path:
    """Have programs of the site tell what they are asked."""
    folder = login.user.home / "data-shim"
    folder.mkdir()
    for name, text in (("python", COPIES), ("podman", COUNTS)):
        log, file = folder / f"{name}.log", folder / name
        log.touch()
        os.chown(log, login.user.uid, -1)
        file.write_text(text.format(log=log, shim=folder))
        file.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def desk(tmp_path_factory, login: Sshd, shim: Path) -> Iterator[CommandLine]:
    desk = CommandLine(tmp_path_factory.mktemp("data") / "project", rules=BOOK)
    site = by_ssh(login).replace("/usr/bin/python3", f"{shim}/python")
    desk.site("cluster", site)
    for folder in ("cards", "late", "raw", "boxed", "own", "seen"):
        (desk.root / folder).mkdir()
    with desk.up():
        yield desk


@pytest.fixture(scope="module")
def image(desk: CommandLine, login: Sshd, tmp_path_factory) -> Iterator[None]:
    """Have an image of a single program, in podman and as a file of the project."""
    system.needs(*PODMAN)
    tree = tmp_path_factory.mktemp("image")
    tree.chmod(0o755)
    (tree / "bin").mkdir()
    shutil.copy(system.find("busybox") or "", tree / "bin" / "busybox")
    (tree / "bin" / "sh").symlink_to("busybox")
    packed = desk.root / "tree.tar"
    with tarfile.open(packed, "w") as archive:
        archive.add(tree, ".")
    (desk.root / "images").mkdir()
    podman("import", str(packed), IMAGE)
    podman("save", "--format", "oci-archive", "-o", f"{desk.root}/images/tools.tar", IMAGE)
    yield
    podman("rmi", "--force", IMAGE)
    shutil.rmtree(f"/tmp/pilotage-images-{login.user.uid}", ignore_errors=True)


def podman(*words: str) -> None:
    """Run podman; what it leaves behind would hold on to a pipe."""
    with tempfile.TemporaryFile() as said:
        subprocess.run(["podman", *words], check=True, stdout=said, stderr=said)


def test_a_file_that_a_hundred_jobs_read_travels_once(desk: CommandLine, login: Sshd, shim: Path):
    desk.write("big/one.bin", random.Random(1).randbytes(SIZE))
    desk.write("cards/a.in")
    jobs = desk.made("many", 100)
    assert {job.state for job in jobs} == {State.DONE}, desk.told()
    assert desk.run("logs", str(jobs[-1].id)) == f"{SIZE}\n"
    moved = (shim / "python.log").stat().st_size
    assert SIZE < moved < SIZE * 1.1
    # Also when it was written anew.
    os.utime(desk.root / "big/one.bin")
    words = ("--input", "big/one.bin", "--", "sh", "-c", "wc -c < big/one.bin")
    again = desk.submit("--site", "cluster", "--via", "sbatch", *words)
    desk.done(again)
    assert desk.run("logs", str(again)) == f"{SIZE}\n"
    assert (shim / "python.log").stat().st_size - moved < SIZE / 10


@pytest.mark.needs("sshfs", "fuse", "bwrap")
def test_mounted_data_is_read_from_here(desk: CommandLine):
    desk.write("maps/x.map", "map\n")
    desk.write("raw/a.txt", "a\n")
    [job] = desk.made("look")
    assert job.state is State.DONE, desk.told()
    assert desk.read("seen/a") == "a\nmap\n"
    assert desk.read("raw/a.txt") == "a\n"
    said = desk.run("logs", str(job.id)).split("\n")
    assert "fuse" in said[0]
    assert said[1] == "cannot write"
    # Nothing is served any more, and nothing is left of it.
    desk.wait(lambda: not list((desk.root / ".pilotage/mounted").iterdir()))


@pytest.mark.needs("sshfs", "fuse", "bwrap")
def test_mounted_data_is_there_again_after_the_connection_was_cut(desk: CommandLine, login: Sshd):
    desk.write("late/l.txt", "late\n")
    desk.wait((login.user.home / "begun-late").exists)
    number = json.loads(desk.read(".pilotage/doors/cluster.json"))["data"]
    assert greets(number)
    login.kill_connections()
    desk.wait(lambda: not greets(number))
    desk.wait(lambda: greets(number))
    (login.user.home / "gate-late").touch()
    [job] = desk.made("late")
    assert job.state is State.DONE, desk.told()
    assert desk.read("seen/l") == "late\n"


def greets(number: int) -> bool:
    """Say whether there is our server behind a door of the login node."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", number), 5) as door:
        door.settimeout(5)
        door.sendall(b"0" * 32)
        return door.recv(7) == b"unknown"
    return False


@pytest.mark.needs("sshfs", "fuse", "bwrap")
def test_mounted_data_is_seen_in_a_container_without_rights(desk: CommandLine, image: None):
    desk.write("boxed/b.txt", "b\n")
    [job] = desk.made("boxed")
    assert job.state is State.DONE, f"{desk.told()}{desk.run('logs', str(job.id), '--stderr')}"
    assert desk.read("seen/b") == "b\n"
    assert desk.run("logs", str(job.id)).split() == ["CapEff:", "0" * 16]


def test_an_image_of_ones_own_is_brought_and_loaded_once(
    desk: CommandLine, image: None, shim: Path
):
    before = loads(shim)
    for name in ("c", "d", "e"):
        desk.write(f"own/{name}.txt", f"{name}\n")
    jobs = desk.made("own", 3)
    assert {job.state for job in jobs} == {State.DONE}, desk.told()
    assert [desk.read(f"seen/{name}") for name in "cde"] == ["c\n", "d\n", "e\n"]
    assert desk.run("logs", str(jobs[0].id)).split() == ["busybox", "sh"]
    assert loads(shim) == before + 1


def loads(shim: Path) -> int:
    """Count how often an image was loaded."""
    return (shim / "podman.log").read_text().split().count("load")
