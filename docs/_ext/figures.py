"""The headline figures of README.md, from what the last honest run of a benchmark wrote.

    python -m docs._ext.figures

writes the table between `<!-- figures -->` and `<!-- /figures -->` anew.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results" / "rules.json"
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
