"""HTCondor: a pool of sixteen cores in the root of a later Debian, with its commands out here."""

from __future__ import annotations

import os
import pwd
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed import processes, user
from testbed.bed import Bed
from testbed.errors import NotUp
from testbed.journal import FOLDER
from testbed.ports import free_port

from . import root

HERE = Path(__file__).parent

COMMANDS = (
    "condor_config_val", "condor_history", "condor_hold", "condor_q", "condor_qedit",
    "condor_release", "condor_rm", "condor_status", "condor_submit", "condor_tail",
    "condor_transfer_data", "condor_vacate_job", "condor_version", "condor_wait",
)  # fmt: skip

#: A command is run out here, by its own loader: so it needs no rights.
COMMAND = """\
#!/bin/sh
# HTCondor takes no jobs from root: it goes as another.
[ "$(id -u)" != 0 ] || exec setpriv --reuid={uid} --regid={gid} --clear-groups "$0" "$@"
export CONDOR_CONFIG={config}
exec {root}/usr/lib64/ld-linux-x86-64.so.2 --inhibit-cache \\
    --library-path "$(echo {root}/usr/lib/*-linux-gnu):{root}/usr/lib" {root}/usr/bin/{name} "$@"
"""


class Condor(Bed):
    """A pool for every user of this machine; what root submits is `user`'s."""

    kind = "condor"

    def up(self) -> None:
        """Start the daemons in their own root."""
        self._root = root.ready()
        self.user = user.make(self)
        self._sockets = FOLDER / self.name
        self._make_folders()
        self._write_config(free_port())
        for name in COMMANDS:
            self._write_command(name)
        self.start()

    @property
    def shared(self) -> Path:
        """The folder that jobs see at the same path; everyone may write to it."""
        return self.folder / "shared"

    @property
    def env(self) -> dict[str, str]:
        """What makes `condor_submit` and its kin found."""
        return {"PATH": f"{self.folder}/bin:{os.environ.get('PATH', os.defpath)}"}

    def start(self) -> None:
        """Start the pool; it remembers the jobs it had."""
        self._master = self.daemon(
            "unshare", "--mount", "--propagation=private", str(HERE / "enter"), str(self._root),
            str(self.folder / "scratch"), str(self.folder), str(self._sockets), "--",
            "/usr/sbin/condor_master", "-f",
            log="master.log", env={"CONDOR_CONFIG": str(self._config)},
        )  # fmt: skip
        self.wait(self._answers, "HTCondor did not answer", "local/log/MasterLog")

    def stop(self) -> None:
        """Let the pool die at once, with all that runs in it, as when the power fails."""
        processes.end([self._master, *processes.below(self._master.pid)])

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Have no job begin while the block runs."""
        self._let_begin(jobs=False)
        try:
            yield
        finally:
            self._let_begin(jobs=True)

    def _let_begin(self, *, jobs: bool) -> None:
        (self.folder / "start").write_text(f"START = {jobs}\n")
        os.kill(self._master.pid, signal.SIGHUP)
        said = f"{jobs}".lower()
        self.wait(
            lambda: {*self.run("condor_status", "-af", "Start").split()} == {said},
            "HTCondor did not read its settings", "local/log/StartLog",
        )  # fmt: skip

    @property
    def _config(self) -> Path:
        return self.folder / "condor_config"

    def _make_folders(self) -> None:
        self.made("folder", self._sockets)
        self._sockets.mkdir()
        nobody = pwd.getpwnam("nobody")
        for name in ("local", "local/log", "local/lock", "local/spool", "local/execute"):
            (self.folder / name).mkdir()
            os.chown(self.folder / name, nobody.pw_uid, nobody.pw_gid)
        os.chown(self._sockets, nobody.pw_uid, nobody.pw_gid)
        for name in ("shared", "who"):
            (self.folder / name).mkdir()
            (self.folder / name).chmod(0o1777)
        for name in ("bin", "scratch"):
            (self.folder / name).mkdir()

    def _write_config(self, port: int) -> None:
        nobody = pwd.getpwnam("nobody")
        text = (HERE / "condor_config").read_text().format(
            folder=self.folder, sockets=self._sockets, port=port,
            uid=nobody.pw_uid, gid=nobody.pw_gid,
        )  # fmt: skip
        self._config.write_text(text)

    def _write_command(self, name: str) -> None:
        path = self.folder / "bin" / name
        text = COMMAND.format(
            root=self._root, name=name, config=self._config, uid=self.user.uid, gid=self.user.gid
        )
        path.write_text(text)
        path.chmod(0o755)

    def _answers(self) -> bool:
        try:
            self.run("condor_q")
            return "slot1" in self.run("condor_status", "-af", "Name")
        except NotUp:
            return False
