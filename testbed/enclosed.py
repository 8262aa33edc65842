"""A site behind a wall: its login node calls two servers outside and hears nobody, its nodes none.

this machine ── wall ── login ── compute
 broker, data            │        Slurm's nodes
                         └ Slurm's controller

The login node has no route but to the network of the two servers, and the wall lets out only what
goes to their ports; nothing comes in. Compute nodes have no route at all but to the login node,
which forwards nothing.
"""

from __future__ import annotations

from contextlib import ExitStack

from . import reserve
from .bed import Bed
from .errors import NotUp
from .network import Namespace
from .slurm import Place, Slurm

#: What may pass the wall of the login node: itself, its compute nodes, and answers.
_WALL = (
    ("-A", "OUTPUT", "-o", "lo", "-j", "ACCEPT"),
    ("-A", "OUTPUT", "-o", "inner", "-j", "ACCEPT"),
    ("-A", "INPUT", "-i", "lo", "-j", "ACCEPT"),
    ("-A", "INPUT", "-i", "inner", "-j", "ACCEPT"),
    ("-A", "INPUT", "-m", "conntrack", "--ctstate", "ESTABLISHED", "-j", "ACCEPT"),
    *(("-P", chain, "DROP") for chain in ("INPUT", "OUTPUT", "FORWARD")),
)


class Enclosed(Bed):
    """The site; `let` makes a hole in its wall."""

    kind = "enclosed"

    def up(self) -> None:
        """Make the networks and the wall, then Slurm inside."""
        net, inner, *_ = reserve.networks()
        #: Where this machine has its broker and its data, as the login node sees it.
        self.broker_address, self.data_address = f"{net}.1", f"{net}.2"
        self.login_address = f"{net}.3"
        self.login, self.compute = (self._node(name) for name in ("login", "compute"))
        self._connect_outside()
        self._connect_inside(f"{inner}.1", f"{inner}.2")
        for rule in _WALL:
            self.login.run("iptables", *rule)
        place = Place(self.login.prefix, self.compute.prefix, f"{inner}.1", f"{inner}.2")
        with ExitStack() as stack:
            self.slurm = stack.enter_context(Slurm(self.folder, place=place))
            self._inner = stack.pop_all()

    def __exit__(self, *reason: object) -> None:
        self._inner.close()
        super().__exit__(*reason)

    def let(self, address: str, port: int) -> None:
        """Let the login node call a port."""
        self.login.run(
            "iptables", "-A", "OUTPUT", "-p", "tcp", "-d", address, "--dport", str(port),
            "-j", "ACCEPT",
        )  # fmt: skip

    def _node(self, name: str) -> Namespace:
        node = Namespace(f"{self.name}-{name}")
        self.made("network", node.name)
        self.run("ip", "netns", "add", node.name)
        # The wall is one for version 4.
        node.run("sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6")
        node.run("sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6")
        node.run("ip", "link", "set", "lo", "up")
        return node

    def _connect_outside(self) -> None:
        end = f"{self.name.rpartition('-')[2]}eo"
        self.made("link", end)
        self.run(
            "ip", "link", "add", end, "type", "veth", "peer", "name", "wall",
            "netns", self.login.name,
        )  # fmt: skip
        for address in (self.broker_address, self.data_address):
            self.run("ip", "address", "add", f"{address}/24", "dev", end)
        self.run("ip", "link", "set", end, "up")
        _give(self.login, "wall", self.login_address)

    def _connect_inside(self, login: str, compute: str) -> None:
        self.login.run(
            "ip", "link", "add", "inner", "type", "veth", "peer", "name", "outer",
            "netns", self.compute.name,
        )  # fmt: skip
        _give(self.login, "inner", login)
        _give(self.compute, "outer", compute)


def reaches(node: Namespace, host: str, port: int) -> bool:
    """Say whether a connection can be made from a node."""
    try:
        node.run("timeout", "2", "bash", "-c", f"exec 3<>/dev/tcp/{host}/{port}")
    except NotUp:
        return False
    return True


def _give(node: Namespace, link: str, address: str) -> None:
    """Give a link of a node its address."""
    node.run("ip", "address", "add", f"{address}/24", "dev", link)
    node.run("ip", "link", "set", link, "up")
