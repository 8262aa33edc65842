"""The same workflow in Python, with the simulation of each chunk as a task of its own.

    python -m examples.atlas.atlas > atlas-each.json
    pilotage flow submit atlas-each.json --param seed=8

How many chunks there are is known only when the generator has run; what comes after them waits for
all of them.
"""

from __future__ import annotations

import json
import sys

from pilotage import Flow


def each_chunk() -> Flow:
    """Write the workflow that fans out over the chunks of the generator."""
    flow = Flow("atlas-each", params={"events": 20_000, "chunks": 8, "seed": 7})
    generate = flow.step(
        "generate", site="condor", application="generate", time="10m",
        parameters={"events": "{events}", "chunks": "{chunks}", "seed": "{seed}"},
        outputs=["events/"], result="summary.json",
    )  # fmt: skip
    simulate = flow.step(
        "simulate", site="slurm", application="simulate", each=generate.result("chunks"),
        parameters={
            "seed": "{seed}", "rank": "{item.number}", "parts": generate.result("count"),
        },
        inputs=[generate], outputs=["tracks/"], nodes=1, time=["1m", "9m"],
    )  # fmt: skip
    merge = flow.step(
        "merge", site="condor", application="merge", time="10m",
        inputs=[generate["summary.json"], simulate], outputs=["muons.dat"], result="merged.json",
    )  # fmt: skip
    histogram = flow.step(
        "histogram", site="condor", application="histogram", time="10m",
        inputs=[merge["muons.dat"]], outputs=["mass.svg"], result="result.json",
    )  # fmt: skip
    flow.output("picture", histogram["mass.svg"])
    flow.output("peak", histogram["result.json"])
    return flow


if __name__ == "__main__":
    json.dump(each_chunk().to_dict(), sys.stdout, indent=1)
