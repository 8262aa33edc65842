"""Matching alone: the rate at which paths find their rules among many that cannot match."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable

from pilotage.rule import files
from pilotage.rule.pattern import Index

#: Folders that files come in; rules beyond these look elsewhere.
_FOLDERS = 10
_SECONDS = 0.2
_IN_BOOK = 50


def index(rules: int) -> Index:
    """Make so many rules, half told apart by their folder and half by the name of the file."""
    tables = []
    for number in range(rules):
        folder = f"data/{number % _FOLDERS}" if number % 2 else f"data/{number // 2}"
        glob = f"{folder}/s{number}_*.csv" if number % 2 else f"{folder}/*.txt"
        tables.append(f"[rule.r{number}]\nfiles = {glob!r}\nrun = ['true']\n")
    books = ("\n".join(tables[at : at + _IN_BOOK]) for at in range(0, rules, _IN_BOOK))
    found = (files.load_text("bench", text, "/base", "/base").rules.values() for text in books)
    return Index(itertools.chain.from_iterable(found))


def rate(rules: int) -> float:
    """Return how many paths a second find the one rule that they match."""
    one = index(rules)
    folders = [f"/base/data/{number}" for number in range(min(_FOLDERS, (rules + 1) // 2))]
    paths = [(folder, f"f{number}.txt") for number in range(100) for folder in folders]
    if any(len(one.find(*path)) != 1 for path in paths):
        raise RuntimeError("a path must match one rule")
    return _rate(lambda: [one.find(folder, name) for folder, name in paths], len(paths))


def bare() -> float:
    """Return the rate of one compiled regular expression for one rule."""
    glob = re.compile(r"/base/data/0/[^/.][^/]*\.txt")
    paths = [f"/base/data/0/f{number}.txt" for number in range(1000)]
    return _rate(lambda: [glob.fullmatch(path) for path in paths], len(paths))


def _rate(work: Callable[[], object], several: int) -> float:
    done, begun = 0, time.process_time()
    while (took := time.process_time() - begun) < _SECONDS:
        work()
        done += several
    return done / took
