"""RabbitMQ as sites have it: encrypted, and whoever comes shows a certificate."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed import processes
from testbed.bed import Bed, listens
from testbed.certificates import Authority, Papers, put
from testbed.errors import NotUp
from testbed.ports import free_port
from testbed.processes import Process

HERE = Path(__file__).parent
#: The scripts of the package that change neither user nor folder.
PROGRAMS = Path("/usr/lib/rabbitmq/bin")


@dataclass(frozen=True)
class Rights:
    """What a user may configure, write and read: regular expressions of names."""

    configure: str = ".*"
    write: str = ".*"
    read: str = ".*"


class Rabbit(Bed):
    """One broker, on the loopback unless told otherwise; each of its users has papers."""

    kind = "rabbit"

    def __init__(
        self, users: Mapping[str, Rights] | Sequence[str] = ("hub", "site", "alice", "bob"),
        folder: Path | None = None, *, address: str = "127.0.0.1",
    ) -> None:  # fmt: skip
        """Take the names of who may come, what each may do, and where the broker listens."""
        super().__init__(folder)
        self.address = address
        given = users if isinstance(users, Mapping) else dict.fromkeys(users, Rights())
        self._users = dict(given)

    def up(self) -> None:
        """Make certificates and start the broker."""
        self.port, self._dist, self._names = free_port(), free_port(), free_port()
        self.authority = Authority(self.folder / "papers")
        self._own = self.authority.issue("broker", address=self.address)
        self.papers = {name: self.authority.issue(name) for name in self._users}
        self._trusted = self.folder / "trusted.pem"
        put(self._trusted, self.authority.certificate.read_bytes())
        definitions = self.folder / "definitions.json"
        definitions.write_text(json.dumps(self._definitions()))
        text = (HERE / "rabbitmq.conf").read_text()
        (self.folder / "rabbitmq.conf").write_text(
            text.format(
                address=self.address,
                port=self.port,
                authority=self._trusted,
                certificate=self._own.certificate,
                key=self._own.key,
                definitions=definitions,
            )
        )
        (self.folder / "plugins").write_text("[rabbitmq_auth_mechanism_ssl].\n")
        (self.folder / "environment").touch()
        # Names of nodes are kept by a process of its own, which would outlive the broker.
        self.daemon("epmd", "-address", "127.0.0.1", "-port", str(self._names), log="names.log")
        self.wait(lambda: listens(self._names), "the broker's names were not kept", "names.log")
        self.start()

    @property
    def env(self) -> dict[str, str]:
        """What the broker and its commands need."""
        return {
            "HOME": str(self.folder),
            "RABBITMQ_NODENAME": f"{self.name}@localhost",
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "environment"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_DIST_PORT": str(self._dist),
            "ERL_EPMD_PORT": str(self._names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_SERVER_ERL_ARGS": "+S 1:1 -kernel inet_dist_use_interface {127,0,0,1}",
        }

    @property
    def url(self) -> str:
        """Where it is."""
        return f"amqps://{self.address}:{self.port}/"

    def renew(self, name: str, seconds: float) -> Papers:
        """Renew the papers of a user, in the same files."""
        return self.authority.issue(name, seconds=seconds)

    def become(self, papers: Papers) -> None:
        """Have the broker show other papers to whoever comes from now on."""
        for new, old in zip(papers, self._own, strict=True):
            put(old, new.read_bytes())
        self._read_again()

    def trust(self, *authorities: Authority) -> None:
        """Have the broker believe these authorities, and no other, from now on."""
        put(self._trusted, b"".join(one.certificate.read_bytes() for one in authorities))
        self._read_again()

    def _read_again(self) -> None:
        # It would do so by itself after minutes.
        self._evaluate("ssl:clear_pem_cache()")

    def start(self) -> None:
        """Start the broker, with what it had on disk."""
        self._process = self.daemon(str(PROGRAMS / "rabbitmq-server"), log="broker.log")
        self.wait(self._listens, "the broker did not listen", "broker.log", 120)

    def _listens(self) -> bool:
        if not self._process.alive:
            raise NotUp(f"the broker ended at its start. {self.tail('broker.log')}")
        return listens(self.port, self.address)

    def stop(self) -> None:
        """Have the broker end in good order."""
        self._process.end(signal.SIGTERM, timeout=30)

    def kill(self) -> None:
        """Kill the broker at once."""
        for each in self._all():
            each.end()
        self._process.end()
        # The next one must not be taken for up because of a port that this one had.
        self.wait(
            lambda: not listens(self.port, self.address), "the killed broker listens", "broker.log"
        )

    def control(self, *words: str) -> str:
        """Run a command of `rabbitmqctl`; slow, since each starts an engine of its own."""
        return self.run(str(PROGRAMS / "rabbitmqctl"), "-q", *words, timeout=120)

    def permit(self, user: str, rights: Rights) -> None:
        """Let a user do this from now on, and nothing else."""
        words = (user, "/", rights.configure, rights.write, rights.read, "test bed")
        self._evaluate(f"rabbit_auth_backend_internal:set_permissions({_binaries(words)})")

    def permit_topics(self, user: str, exchange: str, *, write: str, read: str) -> None:
        """Let a user write and read topics of an exchange that match, and no others."""
        words = (user, "/", exchange, write, read, "test bed")
        self._evaluate(f"rabbit_auth_backend_internal:set_topic_permissions({_binaries(words)})")

    def _evaluate(self, expression: str) -> None:
        """Have the broker evaluate an expression of Erlang, without an engine beside it."""
        cookie = (self.folder / ".erlang.cookie").read_text().strip()
        program = ["erl_call", "-address", f"127.0.0.1:{self._dist}", "-c", cookie, "-e"]
        done = subprocess.run(
            program, env=self.environment(), cwd=self.folder, input=f"{expression}.\n",
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        if done.returncode or not done.stdout.startswith("{ok,"):
            raise NotUp(f"{expression}: {done.stderr.strip() or done.stdout.strip()}")

    def block(self, blocked: bool = True) -> None:  # noqa: FBT001, FBT002 - reads as said
        """Have the broker take no messages, as if its disk were full, or take them again."""
        self.control("set_vm_memory_high_watermark", "0" if blocked else "0.6")

    def _all(self) -> list[Process]:
        return processes.below(self._process.pid)

    def _definitions(self) -> dict[str, object]:
        rights = [
            {"user": name, "vhost": "/", "configure": one.configure, "write": one.write,
             "read": one.read}
            for name, one in self._users.items()
        ]  # fmt: skip
        users = [{"name": name, "password_hash": "", "tags": ""} for name in self._users]
        return {"vhosts": [{"name": "/"}], "users": users, "permissions": rights}


def _binaries(words: Sequence[str]) -> str:
    """Write words as Erlang does."""
    return ", ".join(f"<<{json.dumps(one)}>>" for one in words)
