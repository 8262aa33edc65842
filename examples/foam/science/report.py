"""Last step: assemble what the others found into one page that needs no other file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from . import analyse, files, layout


class Verdict(NamedTuple):
    """What the judge wrote about a scan."""

    #: File name of the scan.
    scan: str
    bubbles_estimated: int
    accepted: bool
    reason: str


def report(
    *, judged: str, segmented: str, analysed: str, page: str, scans: str = "", part: str = ""
) -> None:
    """Write the page from three folders of results, as far as they have come.

    For a scan ``a.png`` they hold ``judged/a.json``, ``judged/a.png`` if it was accepted,
    ``segmented/a.png`` (the picture) and ``analysed/a.csv``. With ``scans``, the folder of the
    scans themselves, the page shows also those that were turned away. With ``part``, the same is
    written there as an element to stand inside another page.
    """
    found = [
        gather(verdict, Path(judged), Path(segmented), Path(analysed), Path(scans or judged))
        for verdict in verdicts(Path(judged))
    ]
    if part:
        files.publish_text(part, layout.fragment(found))
    files.publish_text(page, layout.document(found))


def verdicts(folder: Path) -> list[Verdict]:
    """Read every verdict, in the order of the scans' names."""
    read = [Verdict(**json.loads(path.read_text())) for path in folder.glob("[!.]*.json")]
    return sorted(read)


def gather(
    verdict: Verdict, judged: Path, segmented: Path, analysed: Path, scans: Path
) -> layout.Scan:
    """Collect what there is about one scan."""
    stem = Path(verdict.scan).stem
    table = analysed / f"{stem}.csv"
    pictures = [judged / f"{stem}.png", segmented / f"{stem}.png"]
    return layout.Scan(
        name=stem,
        estimate=verdict.bubbles_estimated,
        accepted=verdict.accepted,
        reason=verdict.reason,
        bubbles=analyse.from_csv(table.read_text()) if table.exists() else [],
        before=next((path for path in (pictures[0], scans / verdict.scan) if path.exists()), None),
        after=pictures[1] if pictures[1].exists() else None,
    )
