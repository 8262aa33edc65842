"""Slurm: a controller and four nodes on this machine, as a site with short queues would have it."""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

from testbed import processes
from testbed.bed import Bed
from testbed.errors import NotUp
from testbed.journal import FOLDER
from testbed.ports import free_port
from testbed.processes import Process

from . import ended
from .accounting import Accounting
from .memory import Memory

NODES = ("n1", "n2", "n3", "n4")

#: In the environment of everything that one node started.
NODE_MARK = "PILOTAGE_TESTBED_NODE"

TEMPLATES = Path(__file__).parent


@dataclass(frozen=True)
class Place:
    """Where in the network a cluster is."""

    #: What comes before commands on the login node, and before the daemons of nodes.
    login: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    #: Where the login node, with the controller, and the nodes are.
    login_address: str = "127.0.0.1"
    node_address: str = "127.0.0.1"


#: All on the loopback.
HERE = Place()


class Slurm(Bed):
    """A cluster with two partitions, `debug`, which is the default, and `long`."""

    kind = "slurm"
    #: What remembers jobs, if anything does.
    accounting: Accounting | None = None

    def __init__(
        self, folder: Path | None = None, *, accounting: bool = False, place: Place = HERE
    ) -> None:
        """Take also whether there is accounting: many sites have it, `sacct` needs it."""
        super().__init__(folder)
        self._place = place
        self.memory = Memory()
        self._with_accounting = accounting

    def up(self) -> None:
        """Start munge, the controller and the nodes."""
        self._ports = {name: free_port() for name in ("controller", *NODES)}
        self._munge_socket = FOLDER / f"{self.name}.munge"
        if self._with_accounting:
            self.accounting = Accounting(self, self._munge_socket)
        for name in ("state", "spool", "log"):
            (self.folder / name).mkdir()
        self.config.write_text(self._configuration())
        (self.folder / "cgroup.conf").write_text(self.memory.cgroup_conf)
        for group in self.memory.groups(NODES):
            self.made("cgroup", group)
        self._nodes: dict[str, Process] = {}
        self._start_munge()
        if self.accounting:
            self.accounting.up()
            self.run("sacctmgr", "--immediate", "add", "cluster", self._cluster)
        self.start_controller()
        for name in NODES:
            self._start_node(name)
        self.wait(self._idle, "The nodes were not idle", "log/slurmctld")

    @property
    def config(self) -> Path:
        """The slurm.conf of the cluster."""
        return self.folder / "slurm.conf"

    @property
    def env(self) -> dict[str, str]:
        """What makes `sbatch` and its kin speak to this cluster."""
        return {"SLURM_CONF": str(self.config)}

    def run(self, *argv: str, timeout: float = 60) -> str:
        """Run a command on the login node as root; return what it writes."""
        return super().run(*self._place.login, *argv, timeout=timeout)

    def ended(self) -> list[ended.Ended]:
        """Return the jobs that have ended so far, also those that the controller has forgotten."""
        return ended.read(self.folder / "log" / "ended")

    def start_controller(self) -> None:
        """Start the controller; it remembers what it knew before."""
        self._controller = self.daemon(
            *self._place.login, "slurmctld", "-D", log="log/slurmctld.out"
        )
        self.wait(self._answers, "The controller did not answer", "log/slurmctld")

    def stop_controller(self) -> None:
        """Stop the controller; jobs go on, commands fail."""
        self._controller.end(signal.SIGTERM)

    def fail_node(self, name: str) -> None:
        """Let a node die with everything on it, and tell the controller."""
        node = self._nodes.pop(name)
        there = [node, *(each for each in processes.marked(NODE_MARK, self._mark(name)))]
        for each in there:
            processes.end([each, *processes.below(each.pid)])
        self.run("scontrol", "update", f"nodename={name}", "state=down", "reason=failed")

    def restore_node(self, name: str) -> None:
        """Bring back a node that failed; return once it takes jobs."""
        self._start_node(name)
        self.wait(lambda: self._back(name), f"{name} did not come back", "log/slurmctld", 60)

    def _back(self, name: str) -> bool:
        """Say whether a node takes jobs, and tell the controller that it may."""
        state = self.run("sinfo", "--noheader", f"--nodes={name}", "--format=%t").split()[0]
        if state in {"idle", "mix", "alloc"}:
            return True
        # It may have come back by itself in this very moment, and then this is refused.
        with contextlib.suppress(NotUp):
            self.run("scontrol", "update", f"nodename={name}", "state=resume")
        return False

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        self.made("file", self._munge_socket)
        self.made("file", f"{self._munge_socket}.lock")
        self.daemon(
            "munged", "--foreground", "--force", f"--socket={self._munge_socket}",
            f"--key-file={key}", f"--pid-file={self.folder}/munged.pid",
            f"--seed-file={self.folder}/munge.seed", f"--log-file={self.folder}/log/munged",
            log="log/munged.out",
        )  # fmt: skip
        self.wait(self._munge_socket.exists, "munged did not start", "log/munged.out")

    def _start_node(self, name: str) -> None:
        mark = {NODE_MARK: self._mark(name)}
        self._nodes[name] = self.daemon(
            *self._place.nodes, "slurmd", "-D", "-N", name, log=f"log/slurmd.{name}.out", env=mark
        )

    @property
    def _cluster(self) -> str:
        return self.name.replace("-", "")

    def _mark(self, name: str) -> str:
        return f"{self.name}/{name}"

    def _answers(self) -> bool:
        try:
            return "UP" in self.run("scontrol", "ping")
        except NotUp:
            return False

    def _idle(self) -> bool:
        states = self.run("sinfo", "--noheader", "--Node", "--partition=debug", "--format=%T")
        return states.split() == ["idle"] * len(NODES)

    def _configuration(self) -> str:
        nodes = "\n".join(
            f"NodeName={name} NodeHostname=localhost NodeAddr={self._place.node_address}"
            f" Port={self._ports[name]}"
            for name in NODES
        )
        return (TEMPLATES / "slurm.conf").read_text().format(
            name=self._cluster, host=socket.gethostname().split(".")[0],
            address=self._place.login_address, port=self._ports["controller"],
            folder=self.folder, munge=self._munge_socket,
            first=1 + 1000 * secrets.randbelow(60_000), memory=self.memory.lines, nodes=nodes,
            accounting=self.accounting.lines if self.accounting else "",
        )  # fmt: skip
