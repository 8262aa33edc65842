"""Figures of README.md and of the page on benchmarks, from the last saved runs.

    python -m docs._ext.figures

renews the table between `<!-- figures -->` and `<!-- /figures -->` of README.md. The page on
benchmarks takes `headlines` and `missed` by the directive `generated`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "bench" / "results"
RESULTS = FOLDER / "rules.json"
README = ROOT / "README.md"
_MARKED = re.compile(r"(<!-- figures -->\n).*?(<!-- /figures -->)", re.DOTALL)
_PEER = "meow-base"
#: What is shown: of the figures whose name has these words, the last one that a peer has, too.
HEADLINES = (
    "files: last job scheduled",
    "files: last job done",
    "processor time a job",
    "chain of",
    "job started, p50",
    "files lost",
)
#: What the page on benchmarks shows of each benchmark, by name.
SHOWN = {
    "rules": (
        "1 rule, 1000 files: last job scheduled",
        "1 rule, 1000 files: last job done",
        "processor time a job to schedule and run, 500 files",
        "chain of 1000 jobs, a hop",
        "file closed to job started, p50",
        "burst of 50000 files: files lost",
        "100000 files, 1000 rules: file written to durable job",
    ),
    "tasks": (
        "1000 processes",
        "1000 processes, the fastest way",
        "10000 functions",
        "10000 functions, the fastest way",
        "one process: submit to result, p50",
        "one function: submit to result, p50",
    ),
    "queue": (
        "durable job starts, 1 job a call",
        "starts with 1000000 queued, as many submitted meanwhile",
        "submit to start on a waiting pilot, p50",
    ),
    "pilots": (
        "20000 pilots with 5 cores each: jobs that run at once",
        "memory of the hub a running job",
        "20000 jobs, 1000 pilots and 20 hubs killed: promises broken",
    ),
    "remote": (
        "50 empty jobs: our overhead a job beyond ssh + sbatch",
        "submissions, as arrays",
        "2000 tiny jobs on a pilot over SSH: a job",
        "1 GB staged",
    ),
    "pools": (
        "J of COBalD's best, all scenarios, exact hint",
        "J of COBalD's best, all scenarios, feedback alone",
    ),
    "edge": (
        "job messages taken, each on disk before it is acknowledged",
        "from message to sbatch, p50, 100000 other jobs in the store",
        "killed with 10000 jobs at the batch system: from its start to the next sbatch",
    ),
    "flows": (
        "from a step done at one site to the next one at another, p50",
        "5 steps here, each reads what the one before left: to the result at home",
    ),
}


def table(results: dict[str, Any]) -> str:
    """Write the headline figures, with the peer's beside them."""
    lines = ["| | Pilotage | MEOW | times better |", "|---|--:|--:|--:|"]
    compared = [one for one in results["figures"] if _PEER in one.get("peer", {})]
    chosen = [[one for one in compared if words in one["name"]][-1:] for words in HEADLINES]
    for one in (one for found in chosen for one in found):
        peer, unit = one["peer"][_PEER], one["unit"]
        ratio = one.get("ratio", {}).get(_PEER)
        shown = f"{_number(ratio)} ×" if ratio else ""
        lines.append(
            f"| {one['name']} | {_number(one['ours'])} {unit} | {_number(peer)} {unit} | {shown} |"
        )
    return "\n".join(lines) + "\n"


def headlines() -> str:
    """Write the headline figures of all benchmarks, with peers and goals beside them."""
    lines = ["| | figure | Pilotage | others | goal | met |", "|---|---|--:|---|---|---|"]
    for bench, names in SHOWN.items():
        found = {one["name"]: one for one in _figures(bench)}
        lines += [_headline(bench, found[name]) for name in names]
    return "\n".join(lines)


def missed() -> str:
    """Write every figure that misses its goal."""
    lines = ["| | figure | Pilotage | goal |", "|---|---|--:|---|"]
    for bench in SHOWN:
        lines += [
            f"| `{bench}` | {one['name']} | {_amount(one['ours'], one['unit'])} | {one['goal']} |"
            for one in _figures(bench)
            if one["met"] is False
        ]
    return "\n".join(lines)


def _headline(bench: str, one: dict[str, Any]) -> str:
    others = [
        f"{who} {_amount(value, one['unit'])}" + _times(one["ratio"].get(who))
        for who, value in one["peer"].items()
    ]
    met = {True: "yes", False: "**no**", None: ""}[one["met"]]
    cells = (f"`{bench}`", one["name"], _amount(one["ours"], one["unit"]), "; ".join(others))
    return "| " + " | ".join((*cells, one["goal"], met)) + " |"


def _times(ratio: float | None) -> str:
    return f" ({_number(ratio)} ×)" if ratio else ""


def _amount(value: float, unit: str) -> str:
    number = f"{value:.4g}" if value < 100 else _number(value)
    return f"{number} {unit}".rstrip()


def _figures(bench: str) -> list[dict[str, Any]]:
    found = json.loads((FOLDER / f"{bench}.json").read_text(encoding="utf-8"))
    return list(found["figures"])


def filled(text: str) -> str:
    """Return the README with its table as the results have it; as it is if there are none."""
    if not RESULTS.exists():
        return text
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    return _MARKED.sub(lambda found: found[1] + table(results) + found[2], text)


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    return f"{value:.3g}"


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
