"""Accounting: slurmdbd, and a MariaDB of its own that nobody reaches but through a socket."""

from __future__ import annotations

import signal
from pathlib import Path

from testbed.bed import Bed, listens
from testbed.journal import FOLDER
from testbed.ports import free_port

TEMPLATE = Path(__file__).parent / "slurmdbd.conf"

#: Lines of slurm.conf that lead the controller here.
LINES = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={munge}
"""

#: The data need not outlive the machine.
HASTE = (
    "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M",
    "--innodb-log-file-size=16M", "--skip-log-bin", "--skip-networking", "--user=root",
)  # fmt: skip


class Accounting:
    """The memory of one cluster."""

    def __init__(self, bed: Bed, munge: Path) -> None:
        self._bed = bed
        self._munge = munge
        self._port = free_port()
        self._socket = FOLDER / f"{bed.name}.mysql"

    @property
    def lines(self) -> str:
        """What slurm.conf says of it."""
        return LINES.format(port=self._port, munge=self._munge)

    def up(self) -> None:
        """Make a database and start what serves it."""
        config = self._bed.folder / "slurmdbd.conf"
        config.touch(mode=0o600)
        config.write_text(
            TEMPLATE.read_text().format(folder=self._bed.folder, munge=self._munge, port=self._port)
        )
        self._start_database()
        self.start()

    def start(self) -> None:
        """Start slurmdbd; it remembers what it knew."""
        # The one way to tell it which socket.
        where = {"MYSQL_UNIX_PORT": str(self._socket)}
        self._slurmdbd = self._bed.daemon("slurmdbd", "-D", log="log/slurmdbd.out", env=where)
        self._bed.wait(self._listens, "slurmdbd did not listen", "log/slurmdbd")

    def stop(self) -> None:
        """Stop slurmdbd: `sacct` fails, jobs go on and are told of later."""
        self._slurmdbd.end(signal.SIGTERM)

    def _start_database(self) -> None:
        data = f"--datadir={self._bed.folder}/mysql"
        for end in ("", ".lock"):
            self._bed.made("file", f"{self._socket}{end}")
        self._bed.run(
            "mariadb-install-db", "--no-defaults", data, "--user=root", "--skip-test-db",
            "--auth-root-authentication-method=normal",
        )  # fmt: skip
        self._bed.daemon(
            "mariadbd", "--no-defaults", data, f"--socket={self._socket}",
            f"--pid-file={self._bed.folder}/mariadbd.pid", *HASTE, log="log/mariadbd",
        )  # fmt: skip
        self._bed.wait(self._socket.exists, "MariaDB did not start", "log/mariadbd")

    def _listens(self) -> bool:
        return listens(self._port)
