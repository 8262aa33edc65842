"""Images of the user's machine, found there and made ready on a node."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import anyio
import pytest

from pilotage.base import errors
from pilotage.data.image import Images
from pilotage.match import submission
from pilotage.node import batchjob
from pilotage.node.batchjob import image
from tests.rigs.node import boxed, sandbox_users
from tests.suite import system

pytestmark = pytest.mark.anyio
PODMAN = ("root", "setpriv", "useradd", "podman", "runc", "busybox", "newuidmap", "catatonit")
SIF = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0" + b"x" * 100
COUNTING = """#!/bin/sh
echo "$1" >> {log}
exec /usr/bin/podman "$@"
"""


def run(*argv: str) -> str:
    """Run a program; what podman leaves behind would hold on to a pipe."""
    with tempfile.TemporaryFile() as said:
        subprocess.run(argv, check=True, cwd="/", stdout=said, stderr=subprocess.DEVNULL)
        said.seek(0)
        return said.read().decode()


def tree(folder: Path) -> Path:
    """Pack a file system of one program."""
    (folder / "bin").mkdir(parents=True)
    shutil.copy(system.find("busybox") or "", folder / "bin" / "busybox")
    (folder / "bin" / "sh").symlink_to("busybox")
    with tarfile.open(f"{folder}.tar", "w") as archive:
        archive.add(folder, ".")
    return Path(f"{folder}.tar")


@pytest.mark.parametrize(
    "name",
    [
        "file:/etc/passwd",
        "file:../x.tar",
        "file:a/../../x",
        "file:",
        "local:",
        "local:--help",
        "file:-x",
        "local:a b",
        "file:a;b",
    ],
)
def test_what_cannot_be_an_image_is_refused_in_rules(name):
    with pytest.raises(errors.BadRule):
        submission.check_image(name)


def test_images_of_this_machine_are_known_in_rules():
    for name in ("file:images/a.tar", "file:a.sif", "local:analysis:2", "local:localhost/x", ""):
        submission.check_image(name)


# -- on the user's machine -----------------------------------------------------------------------


async def test_files_of_the_project_are_known_by_what_is_in_them(tmp_path):
    project = tmp_path / "project"
    (project / "deep").mkdir(parents=True)
    (project / "a.sif").write_bytes(SIF)
    with tarfile.open(project / "deep/b.tar.gz", "w:gz") as archive:
        for name in ("blobs", "oci-layout"):
            archive.addfile(tarfile.TarInfo(f"./{name}"))
    (project / "plain").write_text("no image")
    (tmp_path / "secret.sif").write_bytes(SIF)
    (project / "link.sif").symlink_to(tmp_path / "secret.sif")
    images = Images(project, tmp_path / "kept")
    sif = await images.find("file:a.sif")
    packed = await images.find("file:deep/b.tar.gz")
    assert sif is not None
    assert packed is not None
    assert (sif.kind, packed.kind) == ("sif", "archive")
    assert packed.item("ab") == {"sha256": "ab", "kind": "archive", "name": "file:deep/b.tar.gz"}
    assert await images.find("docker.io/library/python:3.12") is None
    for name, error in (
        ("file:link.sif", errors.Denied),
        ("file:../secret.sif", errors.Denied),
        ("file:/etc/passwd", errors.Denied),
        ("file:none", errors.NotFound),
        ("file:deep", errors.NotFound),
        ("file:plain", errors.ConfigError),
    ):
        with pytest.raises(error):
            await images.find(name)


@pytest.mark.needs("podman", "busybox")
async def test_an_image_of_podman_is_written_once(tmp_path):
    name = f"pilotage-test-{os.getpid()}"
    run("podman", "import", str(tree(tmp_path / "root")), name)
    try:
        images = Images(tmp_path, tmp_path / "kept")
        first = await images.find(f"local:{name}")
        assert first is not None
        before = await anyio.Path(first.path).stat()
        again = await images.find(f"local:localhost/{name}:latest")
        assert again is not None
        assert (await anyio.Path(again.path).stat()).st_mtime_ns == before.st_mtime_ns
        assert first.kind == "archive"
        with pytest.raises(errors.NotFound):
            await images.find("local:no-such-image")
    finally:
        run("podman", "rmi", name)


# -- on the node ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ward():
    system.needs(*PODMAN)
    with sandbox_users.ward() as made:
        code = made.starter().parent
        shutil.copytree(Path(batchjob.__file__).parent, code / "single")
        shutil.copy(str(boxed.__file__), code)
        yield made
        shutil.rmtree(f"/tmp/pilotage-images-{made.uid}", ignore_errors=True)


class Node:
    """A submission with an image among its inputs, and a podman that counts."""

    def __init__(self, ward: sandbox_users.SandboxUsers, folder: Path) -> None:
        self.ward = ward
        self.folder = folder
        self.log = ward.home / f"{folder.name}.log"
        self.shim = ward.root / f"shim-{folder.name}"
        self.shim.mkdir()
        (self.shim / "podman").write_text(COUNTING.format(log=self.log))
        (self.shim / "podman").chmod(0o755)
        (folder / "in").mkdir(parents=True)
        os.chown(folder, ward.uid, -1)

    def bring(self, archive: Path, kind: str = "archive") -> dict[str, str]:
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        shutil.copy(archive, self.folder / "in" / digest)
        (self.folder / "in" / digest).chmod(0o444)
        return {"sha256": digest, "kind": kind, "name": f"file:{archive.name}"}

    def item(self, number: int, brought: dict[str, str], script: str) -> dict[str, Any]:
        area = f"{self.folder}/{number}"
        launch = {"key": f"{number}.1", "argv": ["sh", "-c", script], "env": {"PATH": "/bin"}}
        more = {"dir": f"{area}/run", "cwd": f"{area}/run", "sandbox": {"kind": "podman"}}
        return {"launch": {**launch, **more}, "mount": None, "image": brought}

    async def run(self, number: int, item: dict[str, Any]) -> dict[str, Any]:
        code, area = self.ward.root / "code", f"{self.folder}/{number}"
        program = (sandbox_users.PYTHON, str(code / "boxed.py"), str(code), area)
        path = f"PATH={self.shim}:{self.ward.env['PATH']}"
        argv = self.ward.command("/usr/bin/env", path, *program)
        with anyio.fail_after(sandbox_users.PATIENCE):
            done = await anyio.run_process(argv, input=json.dumps(item).encode(), stderr=None)
        return dict(json.loads(done.stdout))

    def loads(self) -> int:
        return self.log.read_text().split().count("load")


@pytest.fixture
def node(ward, request):
    return Node(ward, ward.home / f"s-{abs(hash(request.node.name))}")


@pytest.fixture(scope="module")
def archives(ward) -> dict[str, Path]:
    """Save one image in both formats, under a name that others may have."""
    made = {}
    podman = ward.command("podman")
    packed = tree(ward.root / "image")
    run(*podman, "import", str(packed), "docker.io/library/famous:1")
    for kind in ("oci-archive", "docker-archive"):
        made[kind] = ward.home / f"{kind}.tar"
        run(*podman, "save", "--format", kind, "-o", str(made[kind]), "docker.io/library/famous:1")
    run(*podman, "rmi", "--force", "docker.io/library/famous:1")
    return made


@pytest.mark.parametrize("kind", ["oci-archive", "docker-archive"])
async def test_an_image_is_loaded_once_on_a_node(node, archives, kind):
    brought = node.bring(archives[kind])
    said: dict[int, dict[str, Any]] = {}

    async def one(number: int) -> None:
        said[number] = await node.run(
            number, node.item(number, brought, "echo $0; echo made > out")
        )

    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(one, number)
    assert {each.get("exit") for each in said.values()} == {0}, said
    assert len({each["image"] for each in said.values()}) == 1
    assert node.loads() == 1
    await one(5)
    assert node.loads() == 1
    # What it calls itself means nothing here, so no other job takes it for that.
    assert "famous" not in run(*node.ward.command("podman", "images"))
    # Whoever tidies up takes nothing from jobs to come.
    run(*node.ward.command("podman", "rmi", "--force", said[0]["image"]))
    await one(6)
    assert said[6]["exit"] == 0
    assert node.loads() == 2
    run(*node.ward.command("podman", "rmi", "--force", said[0]["image"]))


async def test_what_is_no_image_is_said(node, archives):
    junk = node.ward.home / "junk.tar"
    junk.write_text("x" * 1000)
    for number, (brought, words) in enumerate(
        (
            (node.bring(junk), "podman load"),
            ({"sha256": "0" * 64, "kind": "archive", "name": "n"}, "did not arrive"),
            ({"sha256": "../../etc/passwd", "kind": "archive", "name": "n"}, "no digest"),
            (node.bring(junk, "sif"), "apptainer"),
        )
    ):
        said = await node.run(number, node.item(number, brought, "true"))
        assert words in said.get("error", ""), said


def test_apptainer_has_a_file_of_its_own(tmp_path, monkeypatch):
    """Apptainer is in no Debian release: this shows what it would be asked."""
    program = tmp_path / "apptainer"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/log\n: > "$4"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(image, "_home", lambda: str(tmp_path))
    (tmp_path / "in").mkdir()
    launch = {"argv": ["true"], "sandbox": {"kind": "apptainer", "image": "file:x"}}
    area = str(tmp_path / "0")
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("oci", "docker", "sif")}
    for name, sign in (("oci", "oci-layout"), ("docker", "manifest.json")):
        source = tmp_path / "in" / digests[name]
        with tarfile.open(source, "w") as archive:
            archive.addfile(tarfile.TarInfo(sign))
        brought = {"sha256": digests[name], "kind": "archive", "name": "n"}
        for _ in range(2):
            made = image.ready(launch, {"image": brought}, area)
        assert made["sandbox"]["image"] == f"{tmp_path}/{digests[name]}.sif"
        [asked] = [line for line in (tmp_path / "log").read_text().splitlines() if name in line]
        assert asked.endswith(f" {name}-archive:{source}")
    (tmp_path / "in" / digests["sif"]).write_bytes(SIF)
    brought = {"sha256": digests["sif"], "kind": "sif", "name": "n"}
    made = image.ready(launch, {"image": brought}, area)
    assert made["sandbox"]["image"] == f"{tmp_path}/in/{digests['sif']}"
    with pytest.raises(image.NoImageError, match="cannot be run in the sandbox"):
        image.ready({"sandbox": {"kind": "bubblewrap"}}, {"image": brought}, area)
    assert image.ready(launch, {"image": None}, area) == launch
