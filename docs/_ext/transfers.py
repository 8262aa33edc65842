"""What each kind of transfer can do, as a table for people."""

from __future__ import annotations

import msgspec

from pilotage.data.transfer import courier
from pilotage.data.transfer.model import Flags

#: What is shown of the flags, and how it is called.
COLUMNS = {
    "checksum": "checksum of its own",
    "idempotent": "submits once",
    "third_party": "server to server",
    "atomic": "appears whole",
    "times": "keeps times",
    "steady": "notices changes itself",
}


def table() -> str:
    """Write the table in Markdown; schemes that can do the same share a line."""
    lines: dict[Flags, list[str]] = {}
    for scheme, flags in courier.flags().items():
        lines.setdefault(flags, []).append(f"`{scheme}`")
    rows = [["scheme", *COLUMNS.values()], ["---"] * (len(COLUMNS) + 1)]
    for flags, schemes in lines.items():
        facts = msgspec.structs.asdict(flags)
        rows.append([" ".join(schemes), *("yes" if facts[name] else "–" for name in COLUMNS)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
