"""What a review broke: odd names, dying starters, broken books, long chains, full disks."""

from __future__ import annotations

import os
from pathlib import Path

from pilotage.job.model import State
from tests.rig import Rig


async def test_a_limit_key_may_hold_any_bytes(tmp_path: Path) -> None:
    rules = '[rule.r]\nfiles = "in/**/*"\nrun = ["true"]\nlimit = {key = "{dir}:x", most = 1}\n'
    rig = Rig(tmp_path, rules)
    async with rig.live():
        folder = tmp_path / "in" / os.fsdecode(b"od\xffd:2")
        folder.mkdir(parents=True)
        for name in (b"a", b"b\xfe"):
            (folder / os.fsdecode(name)).touch()
        await rig.until(lambda: len(rig.jobs("r", State.DONE)) == 2)
