"""A measurement of the Z boson on this machine: made, simulated in parallel, merged, counted.

    python -m examples.atlas

Four steps hand their data to each other; the last one leaves a picture with a peak.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from examples import stage
from pilotage.hub.project import Project

HERE = Path(__file__).parent


def main() -> int:
    """Play the example; return its exit status."""
    parser = argparse.ArgumentParser(prog="examples.atlas", description=__doc__.split("\n")[0])
    parser.add_argument("--keep", type=Path, default=Path("demo-run-atlas"), metavar="DIR")
    parser.add_argument("--events", type=int, default=20_000)
    options = parser.parse_args()
    root = stage.fresh(options.keep, HERE / "programs", HERE / "here.toml")
    submit = [sys.executable, "-m", "pilotage", "flow", "submit", "here.toml", "--wait"]
    with Project(root) as project, stage.up(project):
        submit += ["--param", f"events={options.events}"]
        status = subprocess.run(submit, cwd=root, check=False).returncode
    if status == 0:
        found = json.loads((root / "atlas/latest/peak/result.json").read_text())
        print(f"the peak is at {found['mass']:.2f} ± {found['mass_error']:.2f} GeV")
        print(f"picture  {root / 'atlas/latest/picture/mass.svg'}")
    return status


if __name__ == "__main__":
    stage.play(main)
