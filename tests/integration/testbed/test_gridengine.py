from __future__ import annotations

import pytest

from testbed.errors import NotUp
from testbed.gridengine import GridEngine


def test_a_job_runs(gridengine: GridEngine):
    script = gridengine.folder / "hello"
    script.write_text("#!/bin/sh\necho $NSLOTS slots\n")
    output = ("-o", f"{gridengine.folder}/output", "-j", "yes")
    gridengine.run("qsub", "-sync", "yes", "-pe", "smp", "2", *output, str(script))
    assert (gridengine.folder / "output").read_text() == "2 slots\n"


def test_jobs_wait_for_the_master(gridengine: GridEngine):
    gridengine.run("qsub", "-h", "-b", "yes", "-N", "held", "true")
    gridengine.stop_master()
    with pytest.raises(NotUp, match=r"(to|contact) qmaster"):
        gridengine.run("qstat")
    gridengine.start_master()
    assert "hqw" in gridengine.run("qstat")
    gridengine.run("qdel", "held")
