"""Grid Engine: a master and one node with four slots, in the queue `all.q`."""

from __future__ import annotations

import re
import signal
import socket
from pathlib import Path

from testbed import reserve
from testbed.bed import Bed
from testbed.errors import NotUp
from testbed.ports import free_port
from testbed.processes import Process

HERE = Path(__file__).parent

#: Where the package has its programs, what they need, and its defaults.
PROGRAMS = Path("/usr/lib/gridengine")
PACKAGE = Path("/var/lib/gridengine")
DEFAULTS = Path("/usr/share/gridengine")

#: What differs from Debian's scheduler, which looks four times a minute.
SCHEDULER = {"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1"}


class GridEngine(Bed):
    """A cluster with one queue and the parallel environment `smp`."""

    kind = "gridengine"

    def up(self) -> None:
        """Make a database, start the master and the node, and open a queue."""
        self._ports = free_port(), free_port()
        self._make_cell()
        self._make_database()
        self.start_master()
        self._execd = self._start("sge_execd")
        self.run("qconf", "-as", "localhost")
        self._configure()
        self.wait(self._ready, "The queue did not open", "sge_execd.log")

    @property
    def env(self) -> dict[str, str]:
        """What makes `qsub` and its kin speak to this cluster."""
        master, node = self._ports
        return {
            "SGE_ROOT": str(self._root), "SGE_CELL": "default",
            "SGE_QMASTER_PORT": str(master), "SGE_EXECD_PORT": str(node),
        }  # fmt: skip

    def start_master(self) -> None:
        """Start the master; it remembers the jobs it had."""
        self._master = self._start("sge_qmaster")
        self.wait(self._answers, "The master did not answer", "sge_qmaster.log")

    def stop_master(self) -> None:
        """Stop the master; jobs go on, commands fail."""
        self._master.end(signal.SIGTERM)

    def restart_node(self) -> None:
        """Start the node's program again, so that it finds the master at once; jobs go on."""
        self._execd.end(signal.SIGTERM)
        self._execd = self._start("sge_execd")

    @property
    def _root(self) -> Path:
        return self.folder / "root"

    def _start(self, program: str) -> Process:
        stay = {"SGE_ND": "1"}
        return self.daemon(str(PROGRAMS / program), log=f"{program}.log", env=stay)

    def _make_cell(self) -> None:
        common = self._root / "default/common"
        for folder in (common, self.folder / "spool/db", self.folder / "spool/qmaster/job_scripts"):
            folder.mkdir(parents=True)
        for name in ("bin", "lib", "util", "utilbin"):
            (self._root / name).symlink_to(PACKAGE / name)
        bootstrap = (HERE / "bootstrap").read_text().format(folder=self.folder)
        (common / "bootstrap").write_text(bootstrap)
        (common / "act_qmaster").write_text("localhost\n")
        # Or it turns away whoever is this machine and calls from the loopback.
        (common / "host_aliases").write_text(f"localhost {socket.gethostname()}\n")

    def _make_database(self) -> None:
        # By these groups jobs are told apart, also from those of another bed.
        groups = 100_000 + 100 * reserve.take("groups", 1000)
        ours = {
            "execd_spool_dir": f"{self.folder}/spool/execd",
            "min_uid": "0", "min_gid": "0", "gid_range": f"{groups}-{groups + 99}",
            "execd_params": "ENABLE_ADDGRP_KILL=true", "load_report_time": "00:00:01",
            "reporting_params": "accounting=true reporting=false flush_time=00:00:01 joblog=false"
            " sharelog=00:00:00",
        }  # fmt: skip
        configuration = self.folder / "configuration"
        defaults = (DEFAULTS / "default-configuration").read_text()
        configuration.write_text(changed(defaults, ours))
        self._tool("spoolinit", "berkeleydb", "libspoolb", f"{self.folder}/spool/db", "init")
        self._tool("spooldefaults", "configuration", str(configuration))
        for what, where in (("complexes", "centry"), ("usersets", "usersets")):
            self._tool("spooldefaults", what, str(DEFAULTS / "util/resources" / where))
        self._tool("spooldefaults", "managers", "root")

    def _configure(self) -> None:
        scheduler = self.folder / "scheduler"
        scheduler.write_text(changed(self.run("qconf", "-ssconf"), SCHEDULER))
        self.run("qconf", "-Msconf", str(scheduler))
        self.run("qconf", "-Ap", str(HERE / "environment"))
        # A folder of jobs that were killed stays, and is named after their number.
        temporary = self.folder / "tmp"
        temporary.mkdir()
        temporary.chmod(0o1777)
        queue = self.folder / "queue"
        queue.write_text(changed((HERE / "queue").read_text(), {"tmpdir": str(temporary)}))
        self.run("qconf", "-Aq", str(queue))

    def _tool(self, name: str, *words: str) -> None:
        self.run(str(PROGRAMS / name), *words)

    def _answers(self) -> bool:
        try:
            return "localhost" in self.run("qconf", "-sh")
        except NotUp:
            return False

    def _ready(self) -> bool:
        # What is not known of a node that has not yet spoken.
        return "-NA-" not in self.run("qstat", "-f", "-q", "all.q")


def changed(text: str, values: dict[str, str]) -> str:
    """Return lines of words and their values, with some values changed."""
    for word, value in values.items():
        text = re.sub(rf"^{word}\s.*", f"{word} {value}", text, flags=re.MULTILINE)
    return text
