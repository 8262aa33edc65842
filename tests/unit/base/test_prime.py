"""What several threads read at once, for the first time, crashes none of them."""

from __future__ import annotations

import subprocess
import sys

#: Each kind is read by many threads that begin at the same moment, and change as often as can be.
_ALL_AT_ONCE = """
import sys, threading
from pathlib import Path
import msgspec
from pilotage.bus import model as bus, wire
from pilotage.flow import schema
from pilotage.flow.model import Flow
from pilotage.job import records
from pilotage.job.model import JobSpec
from pilotage.store import Writer, connect

writer = Writer(connect(Path(":memory:")))
sys.setswitchinterval(1e-6)

def read(kind, facts, ready):
    ready.wait()
    msgspec.convert(facts, kind)

job = {"site": "x", "application": "x", "kind": "job", "v": 1}
for kind, facts in (
    (Flow, {"name": "x", "steps": {"a": {"sites": ["m"], "application": "x"}}}),
    (schema.FlowText, {"name": "x"}),
    (bus.Job, job),
    (JobSpec, {"recipe": {"kind": "command", "argv": ["x"]}}),
):
    ready = threading.Barrier(8)
    threads = [threading.Thread(target=read, args=(kind, facts, ready)) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
writer.close()
"""


def test_many_threads_read_a_kind_for_the_first_time():
    for _ in range(5):
        subprocess.run([sys.executable, "-c", _ALL_AT_ONCE], check=True, timeout=60)
