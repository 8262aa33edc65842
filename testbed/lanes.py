"""Networks of their own on one bridge with this machine, each behind a link that can be slow.

this machine ── bridge ── fast
                       └─ slow      behind a bucket that lets little through
"""

from __future__ import annotations

from pathlib import Path

from . import reserve
from .bed import Bed
from .network import Namespace


class Lanes(Bed):
    """Two nodes that reach this machine, and each other."""

    kind = "lanes"

    def __init__(self, folder: Path | None = None, *, rate: str = "400kbit") -> None:
        """Take also what goes through the slow link in a second, in the words of `tc`."""
        super().__init__(folder)
        self._rate = rate

    def up(self) -> None:
        """Make the bridge, then what hangs on it."""
        token = self.name.rpartition("-")[2]
        net, *_ = reserve.networks()
        #: This machine, as the nodes see it.
        self.address = f"{net}.1"
        bridge = f"{token}br"
        self.made("link", bridge)
        self.run("ip", "link", "add", bridge, "type", "bridge")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", bridge)
        self.run("ip", "link", "set", bridge, "up")
        self.fast = self._make(f"{token}f", bridge, "fast", f"{net}.2")
        self.slow = self._make(f"{token}s", bridge, "slow", f"{net}.3")
        bucket = ("tbf", "rate", self._rate, "burst", "16kb", "latency", "2s")
        self.run("tc", "qdisc", "add", "dev", f"{token}s", "root", *bucket)

    def _make(self, link: str, bridge: str, name: str, address: str) -> Namespace:
        node = Namespace(f"{self.name}-{name}")
        self.made("network", node.name)
        self.run("ip", "netns", "add", node.name)
        self.made("link", link)
        self.run(
            "ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", node.name
        )
        self.run("ip", "link", "set", link, "master", bridge, "up")
        node.run("ip", "link", "set", "lo", "up")
        node.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
        node.run("ip", "link", "set", "eth0", "up")
        return node
