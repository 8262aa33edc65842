"""One SSH server on a port of its own, and the lines that lead a client to it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed import processes
from testbed.bed import Bed, listens
from testbed.ports import free_port
from testbed.processes import Process

from . import keys

PROGRAM = Path("/usr/sbin/sshd")

COMMON = """\
PidFile none
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
# Tests may open many at once.
MaxStartups 200
Subsystem sftp internal-sftp
"""


@dataclass
class Server:
    """A server that listens on the loopback, or on an address in a network namespace."""

    bed: Bed
    alias: str
    #: Lines of sshd_config beside the common ones; of a keyword said twice the first counts.
    lines: Sequence[str]
    #: Lines of ssh_config beside the address.
    client: Sequence[str] = ()
    #: What is in the environment of who logs in.
    env: dict[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"
    #: What comes before the server's command: `ip netns exec …`.
    prefix: tuple[str, ...] = ()
    program: Path = PROGRAM
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self.folder = self.bed.folder / self.alias
        self.folder.mkdir()
        self.key = keys.make(self.folder / "host_key")
        # sshd wants this to be there; it is the package's, and stays.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self._config.write_text(self._configuration())
        self.start()

    def start(self) -> None:
        """Start it, on the same port as ever."""
        log = f"{self.alias}/log"
        self._process = self.bed.daemon(
            *self.prefix, str(self.program), "-D", "-e", "-f", str(self._config), log=log
        )
        self.bed.wait(self._listens, f"sshd for {self.alias} did not listen", log)

    def stop(self) -> None:
        """Stop it and cut its connections; what runs on the other side goes on, if it can."""
        connections = self._connections()
        self._process.end()
        processes.end(connections)

    def kill_connections(self) -> None:
        """Cut its connections; new ones can be made."""
        processes.end(self._connections())

    @property
    def entry(self) -> str:
        """Its lines of an ssh_config."""
        lines = [f"HostName {self.host}", f"Port {self.port}", *self.client]
        return "\n    ".join([f"Host {self.alias}", *lines])

    @property
    def known_host(self) -> str:
        """Its line of a known_hosts."""
        return f"[{self.host}]:{self.port} {keys.public(self.key)}"

    @property
    def _config(self) -> Path:
        return self.folder / "sshd_config"

    def _listens(self) -> bool:
        return listens(self.port, self.host)

    def _connections(self) -> list[Process]:
        """Return the processes of sshd that serve clients, not those that they started."""
        ours = _program(self._process.pid)
        return [each for each in processes.below(self._process.pid) if _program(each.pid) == ours]

    def _configuration(self) -> str:
        where = [f"ListenAddress {self.host}:{self.port}", f"HostKey {self.key}"]
        # One line for all: of several the first would count.
        env = [f"SetEnv {' '.join(f'{name}={value}' for name, value in self.env.items())}"]
        return "\n".join([*where, *self.lines, *(env if self.env else []), COMMON])


def renamed(folder: Path, name: str) -> Path:
    """Return a copy of sshd with another name, by which it asks PAM."""
    return Path(shutil.copy(PROGRAM, folder / name))


def _program(pid: int) -> Path | None:
    try:
        return Path(f"/proc/{pid}/exe").readlink()
    except (FileNotFoundError, ProcessLookupError):
        return None
