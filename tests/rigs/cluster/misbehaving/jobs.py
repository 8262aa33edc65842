"""The jobs of the scheduler that misbehaves: ids and names here, the rest in the queue behind."""

from __future__ import annotations

import fcntl
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pilotage.node.queue import program, submission, supervisor

#: More than any test has at once: here nothing waits unless a fault says so.
SLOTS = 256
STATES = {
    "queued": "PENDING", "running": "RUNNING", "unknown": "RUNNING", "exited": "COMPLETED",
    "signalled": "FAILED", "timeout": "TIMEOUT", "cancelled": "CANCELLED", "node": "NODE_FAIL",
    "memory": "OUT_OF_MEMORY",
}  # fmt: skip

#: Stands for the id of every job; and a state of all of them that nobody knows.
ANY = "*"
WONDERING = {ANY: "WONDERING"}


class Jobs:
    """All jobs that were ever accepted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._root = str(folder / "queue")
        #: The ids of what this call accepted.
        self.accepted: list[int] = []

    def number(self) -> int:
        """Return an id that no job had."""
        with locked(self._folder / "next.json", [1]) as last:
            last[0] += 1
            return int(last[0]) - 1

    def submit(self, argv: list[str], script: str, *, hidden: int, reuse: bool) -> int:
        """Take a job, and return its id."""
        given = dict(re.findall(r"--([a-z-]+)=(.*)", "\n".join(argv)))
        count = int(given["array"].partition("-")[2]) + 1 if "array" in given else 1
        with locked(self._folder / "jobs.json", []) as known:
            number = known[0]["id"] if reuse and known else self.number()
        env = f"export SLURM_JOB_ID={number}\n"
        if "array" in given:
            env += f"export SLURM_ARRAY_JOB_ID={number} SLURM_ARRAY_TASK_ID=$PILOTAGE_INDEX\n"
        order = {
            "key": given["job-name"],
            "count": count,
            "cores": 1,
            "slots": SLOTS,
            "time": float(given.get("time", 0)) * 60,
            "memory": 0,
            "grace": 5.0,
            "folder": given["chdir"],
            "by": submission.me(),
        }
        new = submission.new(self._root, order, env + script)
        entry = {
            "id": number, "queue": new.id, "hidden": hidden, "name": given["job-name"],
            "comment": given.get("comment", ""), "array": "array" in given,
        }  # fmt: skip
        with locked(self._folder / "jobs.json", []) as known:
            known.append(entry)
        supervisor.detach(new, self._root)
        self.accepted.append(number)
        return int(number)

    def wait(self, number: int) -> int:
        """Wait for a job as `srun` does; return its exit status."""
        while True:
            (row,) = [row for job, row in self._rows() if job["id"] == number]
            if row["phase"] == "over":
                return int(row.get("exit") or 0)
            time.sleep(0.05)

    def cancel(self, word: str) -> None:
        """Call off `12`, `12_3` or `12_[0-3,7]`."""
        number, _, rest = word.partition("_")
        with locked(self._folder / "jobs.json", []) as known:
            found = [job for job in known if str(job["id"]) == number]
        for job in found:
            one = submission.LocalSubmission(f"{self._root}/{job['queue']}")
            wanted = _spans(rest) if rest else range(one.order()["count"])
            for index in wanted:
                program.stop(one, index)

    def queue(self, argv: list[str], words: dict[str, str]) -> list[str]:
        """Return the rows of `squeue --Format=…`; `words` are states that are said instead."""
        shown = next(word for word in argv if word.startswith("--Format=")).partition("=")[2]
        fields = [re.fullmatch(r"(\w+):(\d+)(.*)", one, re.DOTALL) for one in shown.split(",")]
        with locked(self._folder / "jobs.json", []) as known:
            unseen = {job["queue"] for job in known if job["hidden"] > 0}
            for job in known:
                job["hidden"] = max(0, job["hidden"] - 1)
        rows = []
        for job, row in self._rows():
            if job["queue"] not in unseen:
                values = _values(job, row, words)
                texts = (
                    f"{values[field[1]]:<{field[2]}.{field[2]}}{field[3]}"
                    for field in fields
                    if field
                )
                rows.append("".join(texts) + "\n")
        return rows

    def history(self, argv: list[str], words: dict[str, str]) -> list[str]:
        """Return the rows of `sacct --format=…`; `words` are states that are said instead."""
        given = {word.partition("=")[0]: word.partition("=")[2] for word in argv}
        rows = []
        for job, row in self._rows():
            values = _values(job, row, words)
            fields = (values[name] for name in given["--format"].split(","))
            rows.append(given["--delimiter"].join(fields) + "\n")
        return rows

    def _rows(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        with locked(self._folder / "jobs.json", []) as known:
            found = list(known)
        for job in found:
            one = submission.LocalSubmission(f"{self._root}/{job['queue']}")
            for row in program.listed(one):
                yield job, row


def _values(job: dict[str, Any], row: dict[str, Any], words: dict[str, str]) -> dict[str, str]:
    over = row["phase"] == "over"
    state = STATES.get(row.get("cause") or "unknown" if over else row["phase"], "NODE_FAIL")
    code, sig = row.get("exit") or 0, row.get("signal") or 0
    if state == "COMPLETED" and code:
        state = "FAILED"
    index = str(row["index"])
    number = f"{job['id']}_{index}" if job["array"] else str(job["id"])
    state = words.get(number, words.get(ANY, state))
    start, end = (str(int(row[name])) if row.get(name) else "N/A" for name in ("started", "ended"))
    return {
        "ArrayJobID": str(job["id"]),
        "ArrayTaskID": index if job["array"] else "N/A",
        "JobID": number,
        "State": state,
        "exit_code": str(code << 8 | sig),
        "ExitCode": f"{code}:{sig}",
        "Reason": "None",
        "NodeList": row.get("node") or "",
        "StartTime": start,
        "Start": start,
        "EndTime": end,
        "End": end,
        "Comment": job["comment"] or "(null)",
        "Name": job["name"],
        "JobName": job["name"],
    }


def _spans(text: str) -> list[int]:
    found: list[int] = []
    for span in text.strip("[]").split(","):
        first, _, last = span.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


@contextmanager
def locked(path: Path, empty: list[Any]) -> Iterator[list[Any]]:
    """Change a list in a file that others change too."""
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        found = json.loads(file.read() or json.dumps(empty))
        try:
            yield found
        finally:
            file.seek(0)
            file.truncate()
            file.write(json.dumps(found))
