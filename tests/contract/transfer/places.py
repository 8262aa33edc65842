"""Real servers, each over a folder of this machine, and how a courier gets to them."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio.from_thread

from pilotage.data.transfer.allow import Allowed
from pilotage.data.transfer.courier import Courier
from pilotage.data.transfer.keys import Credentials
from pilotage.data.transfer.kind.hub import HubAddress
from pilotage.data.transfer.retrying import RetryPolicy
from pilotage.data.transfer.url import PORT
from pilotage.project import settings as config
from testbed.bed import listens
from testbed.ports import free_port
from testbed.ssh import Sshd
from tests.rigs.cluster.web import Web, serving
from tests.rigs.project import hub_port

#: Fails at once: a test that means to try again says so.
ONCE = RetryPolicy(attempts=1, deadline=120)


@dataclass
class Place:
    """A folder that a server serves."""

    kind: str
    root: Path
    url: str
    allowed: Allowed
    keys: dict[str, Credentials] = field(default_factory=dict)
    #: Whose files they are, if not ours.
    owner: str = ""
    web: Web | None = None
    #: The hub whose port it is.
    home: HubAddress | None = None

    def courier(self, patience: RetryPolicy = ONCE, **more) -> Courier:
        made = Courier(
            self.allowed, keys=self.keys, patience=patience, dice=random.Random(1), **more
        )
        made.home = self.home
        return made

    def put(self, files: dict[str, bytes]) -> None:
        """Put files there, as their owner has them."""
        for name, data in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            os.utime(path, (1_700_000_000, 1_700_000_000))
        self.own()

    def own(self) -> None:
        if self.owner:
            subprocess.run(["chown", "-R", self.owner, str(self.root)], check=True)


def allowed(*schemes: str, hosts: tuple[str, ...] = ("127.0.0.1",), root: str = "") -> Allowed:
    roots = (root,) if root else ()
    return Allowed(schemes=schemes, hosts=hosts, read=roots, write=roots)


def fresh(top: Path) -> Path:
    top.mkdir(parents=True, exist_ok=True)
    return top


@contextmanager
def file(top: Path) -> Iterator[Place]:
    root = fresh(top / "root")
    yield Place("file", root, f"file://{root}", allowed("file", root=str(root)))


@contextmanager
def web(top: Path, *, dav: bool) -> Iterator[Place]:
    root = fresh(top / "root")
    with serving(root, dav=dav) as server:
        yield Place("http", root, server.url, allowed("http"), web=server)


@contextmanager
def ssh(bed: Sshd, scheme: str) -> Iterator[Place]:
    root = fresh(bed.folder / "transfer" / f"{time.monotonic_ns()}")
    root.parent.chmod(0o755)
    may = allowed(scheme, hosts=("key", "127.0.0.1"))
    keys = {"key": Credentials(ssh_config=str(bed.config))}
    place = Place(scheme, root, f"{scheme}://key{root}", may, keys, owner=bed.user.name)
    place.own()
    try:
        yield place
    finally:
        shutil.rmtree(root)


@contextmanager
def started(argv: list[str], port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while not listens(port):
            assert process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < end, log.read_text(errors="replace")
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def rsync(top: Path) -> Iterator[Place]:
    root, port = fresh(top / "root"), free_port()
    config = top / "rsyncd.conf"
    config.write_text(
        f"use chroot = no\npid file = {top}/pid\nlock file = {top}/lock\nlog file = {top}/log\n"
        f"uid = {os.getuid()}\ngid = {os.getgid()}\n[data]\npath = {root}\nread only = no\n"
    )
    argv = [
        "rsync", "--daemon", "--no-detach", "--address=127.0.0.1", f"--port={port}",
        f"--config={config}",
    ]  # fmt: skip
    with started(argv, port, top / "out"):
        yield Place("rsync", root, f"rsync://127.0.0.1:{port}/data", allowed("rsync"))


@contextmanager
def xrootd() -> Iterator[Place]:
    # Not below pytest's folder, into which no other user may look.
    top = Path(tempfile.mkdtemp(prefix="pilotage-xrootd-"))
    top.chmod(0o755)
    root, admin, port = fresh(top / "root"), fresh(top / "admin"), free_port()
    config = top / "xrootd.cfg"
    config.write_text(
        f"all.export /\noss.localroot {root}\nall.adminpath {admin}\nall.pidpath {admin}\n"
        f"xrd.port {port}\nxrd.network nodnr\n"
    )
    # It does not run as root.
    user = "nobody" if os.getuid() == 0 else ""
    if user:
        subprocess.run(["chown", "-R", user, str(top)], check=True)
    argv = ["xrootd", *(["-R", user] if user else []), "-c", str(config)]
    try:
        with started(argv, port, top / "out"):
            where = f"root://127.0.0.1:{port}/"
            yield Place("root", root, where, allowed("root"), owner=user)
    finally:
        shutil.rmtree(top)


@contextmanager
def hub(top: Path) -> Iterator[Place]:
    """Serve what one attempt writes at the port of a hub."""
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(hub_port.running(top)) as made,
    ):
        key = made.agent("mira")
        made.send("mira", 1, writes="c/")
        home = HubAddress(url=made.url, key=lambda: key)
        root = fresh(config.port_folder(made.project.state) / "c")
        yield Place("hub", root, f"{PORT}c", Allowed(schemes=("hub",)), home=home)


#: How each kind is brought up, and what it needs of the machine.
KINDS: dict[str, tuple[Callable[..., AbstractContextManager[Place]], tuple[str, ...]]] = {
    "file": (file, ()),
    "hub": (hub, ()),
    "sftp": (ssh, ("ssh", "sshd", "root")),
    "rsync": (rsync, ("rsync",)),
    "webdav": (web, ()),
    "root": (xrootd, ("xrootd", "xrdcp", "xrdfs")),
}
