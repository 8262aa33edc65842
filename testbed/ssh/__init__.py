"""SSH servers as sites have them: by key, with a one-time code, by certificate, behind another."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed import user
from testbed.bed import Bed

from . import client, keys
from .server import Server, renamed

HERE = Path(__file__).parent

#: Seconds for which certificates hold.
HOUR_S = 3600

#: What asks for a code; each kind of question needs one module that says yes.
PAM = """\
auth required pam_exec.so quiet expose_authtok {check} {codes}
auth required pam_permit.so
account required pam_permit.so
session required pam_permit.so
"""


class Sshd(Bed):
    """Five servers, each with an alias that `ssh -F` with `config` knows.

    `key` takes a key; `code` a key and then a one-time code; `certificate` a certificate only;
    `behind` a key, and is reached through `jump`.
    """

    kind = "sshd"
    #: The server that is meant where none is named.
    alias = "key"

    def __init__(self, folder: Path | None = None, env: Mapping[str, str] | None = None) -> None:
        """Take also what is to be in the environment of who logs in."""
        super().__init__(folder)
        self._session = dict(env or {})

    def up(self) -> None:
        """Make a user, keys and servers."""
        self.user = user.make(self)
        self._key = keys.make(self.folder / "id")
        self._authority = keys.make(self.folder / "authority")
        self._certified = keys.make(self.folder / "certified")
        self.certify()
        authorized = self.folder / "authorized_keys"
        authorized.write_text(keys.public(self._key) + "\n")
        by_key = [f"AuthorizedKeysFile {authorized}"]
        self.servers = {
            "key": self._serve("key", by_key),
            "code": self._serve_codes(by_key),
            "certificate": self._serve_certificates(),
            "jump": self._serve("jump", by_key),
            "behind": self._serve("behind", by_key, ["ProxyJump jump"]),
        }
        client.write(self.config, self.user.name, self._key, self.servers.values())

    @property
    def config(self) -> Path:
        """The file for `ssh -F`: with it nothing in ~/.ssh is read or written."""
        return self.folder / "ssh_config"

    @property
    def env(self) -> dict[str, str]:
        """Where the file for `ssh -F` is."""
        return {"PILOTAGE_TESTBED_SSH": str(self.config)}

    def ssh(self, *command: str, alias: str = alias) -> str:
        """Run a command there; return what it writes."""
        return self.run("ssh", "-F", str(self.config), "-o", "BatchMode=yes", alias, *command)

    def code(self) -> str:
        """Return a new one-time code for `code`."""
        code = f"{secrets.randbelow(10**6):06}"
        (self._codes / code).touch()
        return code

    def certify(self, seconds: int = HOUR_S) -> None:
        """Renew the certificate for `certificate`."""
        keys.certify(self._certified, self._authority, self.user.name, seconds)

    def start(self, alias: str = alias) -> None:
        """Start a server that was stopped."""
        self.servers[alias].start()

    def stop(self, alias: str = alias) -> None:
        """Stop a server and cut its connections."""
        self.servers[alias].stop()

    def kill_connections(self, alias: str = alias) -> None:
        """Cut the connections of a server that goes on."""
        self.servers[alias].kill_connections()

    @property
    def _codes(self) -> Path:
        return self.folder / "codes"

    def _serve(self, alias: str, lines: list[str], route: Sequence[str] = ()) -> Server:
        return Server(self, alias, lines, route, env=self._session)

    def _serve_codes(self, by_key: list[str]) -> Server:
        # A PAM service is named after the program that asks.
        service = f"pilotage-{self.name}"
        self._codes.mkdir()
        pam = Path("/etc/pam.d", service)
        self.made("file", pam)
        pam.write_text(PAM.format(check=HERE / "check-code", codes=self._codes))
        lines = [
            "UsePAM yes", "KbdInteractiveAuthentication yes",
            "AuthenticationMethods publickey,keyboard-interactive:pam",
        ]  # fmt: skip
        return Server(
            self, "code", by_key + lines, env=self._session, program=renamed(self.folder, service)
        )

    def _serve_certificates(self) -> Server:
        trusted = f"TrustedUserCAKeys {self._authority}.pub"
        shown = [f"IdentityFile {self._certified}", f"CertificateFile {self._certified}-cert.pub"]
        return self._serve("certificate", [trusted, "AuthorizedKeysFile none"], shown)
