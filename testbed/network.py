"""Two sites, each with a login node and compute nodes in networks of their own.

hub (this machine) ── one login ── one compute      which reaches the hub
hub (this machine) ── two login ── two compute      which reaches its login node alone
"""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from . import reserve, user
from .bed import Bed
from .errors import NotUp
from .slurm import Place, Slurm
from .ssh import client, keys
from .ssh.server import Server


@dataclass(frozen=True)
class Namespace:
    """A node, as far as the network goes."""

    name: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """What comes before a command that is to run there."""
        # Not `ip netns exec`, which hides what is mounted in /sys.
        return ("nsenter", f"--net=/run/netns/{self.name}")

    def run(self, *argv: str) -> str:
        """Run a command there as root; return what it writes."""
        return _run(*self.prefix, *argv)


@dataclass
class Site:
    """A login node that the hub reaches, and behind it compute nodes."""

    #: Also the alias of its login node.
    name: str
    login: Namespace
    compute: Namespace
    #: The hub as the login node sees it, and the login node as the hub does.
    hub_address: str
    login_address: str
    #: The login node as the compute nodes see it, and they as it does.
    inner_address: str
    compute_address: str
    #: A controller on the login node and nodes behind it.
    slurm: Slurm | None = None
    server: Server | None = None


class Sites(Bed):
    """Site `one`, whose compute nodes reach the hub, and site `two`, whose do not."""

    kind = "sites"

    def __init__(self, folder: Path | None = None, *, slurm: bool = False) -> None:
        """Take also whether each site has Slurm."""
        super().__init__(folder)
        self._with_slurm = slurm

    def up(self) -> None:
        """Make the networks, then what runs in them."""
        self.user = user.make(self)
        one, one_inner, two, two_inner = reserve.networks()
        self.one = self._make_site("one", one, one_inner)
        self.two = self._make_site("two", two, two_inner)
        self._open(self.one)
        with ExitStack() as stack:
            for site in (self.one, self.two):
                if self._with_slurm:
                    place = Place(
                        site.login.prefix, site.compute.prefix,
                        site.inner_address, site.compute_address,
                    )  # fmt: skip
                    site.slurm = stack.enter_context(Slurm(self.folder, place=place))
            self._serve()
            self._inner = stack.pop_all()

    def __exit__(self, *reason: object) -> None:
        self._inner.close()
        super().__exit__(*reason)

    @property
    def config(self) -> Path:
        """The file for `ssh -F`, with the aliases `one` and `two`."""
        return self.folder / "ssh_config"

    @property
    def env(self) -> dict[str, str]:
        """Where the file for `ssh -F` is."""
        return {"PILOTAGE_TESTBED_SITES": str(self.config)}

    def ssh(self, alias: str, *command: str) -> str:
        """Run a command on a login node; return what it writes."""
        return self.run("ssh", "-F", str(self.config), "-o", "BatchMode=yes", alias, *command)

    def _make_site(self, name: str, outer: str, inner: str) -> Site:
        token = self.name.rpartition("-")[2]
        login, compute = (
            self._make_namespace(f"{self.name}-{name}-{end}") for end in ("login", "compute")
        )
        site = Site(name, login, compute, f"{outer}.1", f"{outer}.2", f"{inner}.1", f"{inner}.2")
        ends = f"{token}{name[0]}h", f"{token}{name[0]}l"
        self.made("link", ends[0])
        _run("ip", "link", "add", ends[0], "type", "veth", "peer", ends[1], "netns", login.name)
        _run("ip", "address", "add", f"{site.hub_address}/24", "dev", ends[0])
        _run("ip", "link", "set", ends[0], "up")
        _give(login, ends[1], site.login_address)
        login.run(
            "ip", "link", "add", "inner", "type", "veth", "peer", "outer", "netns", compute.name
        )
        _give(login, "inner", site.inner_address)
        _give(compute, "outer", site.compute_address)
        return site

    def _make_namespace(self, name: str) -> Namespace:
        self.made("network", name)
        _run("ip", "netns", "add", name)
        _run("ip", "-n", name, "link", "set", "lo", "up")
        return Namespace(name)

    def _open(self, site: Site) -> None:
        """Let compute nodes and the hub reach each other through the login node."""
        inner = f"{site.inner_address.rpartition('.')[0]}.0/24"
        site.login.run("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        site.compute.run("ip", "route", "add", "default", "via", site.inner_address)
        _run("ip", "route", "add", inner, "via", site.login_address)

    def _serve(self) -> None:
        key = keys.make(self.folder / "id")
        authorized = self.folder / "authorized_keys"
        authorized.write_text(keys.public(key) + "\n")
        servers = []
        for site in (self.one, self.two):
            site.server = Server(
                self, site.name, [f"AuthorizedKeysFile {authorized}"],
                env=site.slurm.env if site.slurm else {},
                host=site.login_address, prefix=site.login.prefix,
            )  # fmt: skip
            servers.append(site.server)
        client.write(self.config, self.user.name, key, servers)


def _give(node: Namespace, link: str, address: str) -> None:
    """Give a link of a node its address."""
    node.run("ip", "address", "add", f"{address}/24", "dev", link)
    node.run("ip", "link", "set", link, "up")


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode:
        raise NotUp(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout
