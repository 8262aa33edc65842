"""Be `sbatch`, `squeue`, `sacct`, `scancel` or `srun` of a scheduler that misbehaves.

Run as `python -m tests.rigs.cluster.misbehaving.tool NAME FOLDER ARGUMENTS…`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.rigs.cluster.misbehaving import faults, jobs

NAME, FOLDER, ARGV = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
SETTINGS: dict[str, Any] = json.loads((FOLDER / "settings.json").read_text())


def main() -> int:
    """Behave, or do what the next fault for this command says."""
    if "--version" in ARGV:
        return say("slurm-wlm 22.05.8\n")
    fault = _next()
    known = jobs.Jobs(FOLDER)
    if fault.get("fault") in {"slow", "late_refuse"}:
        _minute(fault)
    match NAME:
        case "sbatch" | "srun":
            code = _submit(known, fault)
        case "scancel":
            code = _cancel(known, fault.get("fault", ""))
        case _:
            code = _list(known, fault)
    _note(fault.get("fault", ""), known.accepted)
    return _end(code)


def _submit(known: jobs.Jobs, fault: dict[str, Any]) -> int:
    name = fault.get("fault", "")
    if name in {"error", "late_refuse"}:
        return say(error=faults.DOUBT, code=1)
    if name == "refuse":
        return say(error=faults.FINAL, code=1)
    if name == "junk":
        return say(faults.JUNK)
    if name == "killed":
        return -signal.SIGKILL
    if name == "vanish":
        return say(f"{known.number()}\n")
    hidden = int(fault.get("listings", 2)) if name == "hide" else 0
    script = Path(ARGV[-1]).read_text() if NAME == "srun" else sys.stdin.read()
    for _ in range(2 if name == "twice" else 1):
        number = known.submit(ARGV, script, hidden=hidden, reuse=name == "reuse")
    # Noted before we may be killed for being late.
    if name == "late_accept":
        _note(name, known.accepted)
        known.accepted.clear()
        _minute(fault)
    if NAME == "srun" and name == "":
        return known.wait(number)
    return _answer(name, number)


def _answer(name: str, number: int) -> int:
    """Say what `sbatch` says of a job that it has taken."""
    match name:
        case "error_accept":
            return say(error=faults.DOUBT, code=1)
        case "junk_accept":
            return say(faults.JUNK)
        case "silent_accept":
            return 0
        case "id_error":
            return say(f"{number}\n", error=faults.DOUBT, code=1)
        case "killed_accept":
            return -signal.SIGKILL
        case _:
            return say(f"{number}\n")


def _cancel(known: jobs.Jobs, name: str) -> int:
    if name not in {"error", "deaf"}:
        for word in ARGV:
            if not word.startswith("-"):
                known.cancel(word)
    failed = name in {"error", "error_done"}
    return say(error=f"scancel: {faults.AWAY}", code=1) if failed else 0


def _list(known: jobs.Jobs, fault: dict[str, Any]) -> int:
    name = fault.get("fault", "")
    if name == "error":
        return say(error=f"{NAME}: {faults.AWAY}", code=1)
    if name == "nothing":
        return -signal.SIGKILL
    if name in faults.INSTEAD:
        return say(faults.INSTEAD[name])
    if NAME == "sacct" and not SETTINGS["accounting"]:
        return say(error="Slurm accounting storage is disabled\n", code=1)
    return _table(known, name, fault.get("words", jobs.WONDERING) if name == "unknown" else {})


def _table(known: jobs.Jobs, name: str, words: dict[str, str]) -> int:
    table = known.queue(ARGV, words) if NAME == "squeue" else known.history(ARGV, words)
    last = FOLDER / f"last.{NAME}"
    if name == "stale" and last.exists():
        return say(last.read_text())
    if name == "short":
        table = table[: len(table) // 2]
    text = "".join(table)
    last.write_text(text)
    if name == "truncated":
        # Never at the end of a row: that no text can tell from a listing without the rest.
        text = text[: max(1, len(text) * 2 // 3)].rstrip("\n\x1e")[:-1] or "1"
    if name == "bytes":
        sys.stdout.buffer.write(text.encode() + b"\xff\xfe\x80 caf\xe9\n")
        return 0
    return say(text)


def say(text: str = "", *, error: str = "", code: int = 0) -> int:
    sys.stdout.write(text)
    sys.stderr.write(error)
    return code


def _next() -> dict[str, Any]:
    """Take the next fault of this command out of the plan."""
    with jobs.locked(FOLDER / "plan.json", []) as plan:
        for place, one in enumerate(plan):
            if one["tool"] == NAME:
                found: dict[str, Any] = plan.pop(place)
                return found
    return {}


def _note(fault: str, accepted: list[int]) -> None:
    line = json.dumps([time.time(), NAME, ARGV, fault, accepted])
    with (FOLDER / "calls.jsonl").open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def _minute(fault: dict[str, Any]) -> None:
    sys.stdout.flush()
    time.sleep(60 * SETTINGS["scale"] * fault.get("minutes", 1))


def _end(code: int) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
