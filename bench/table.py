"""The figures of a run as a table for people."""

from __future__ import annotations

from collections.abc import Sequence

from bench.figure import Figure, Report


def lines(report: Report) -> list[str]:
    """Return the table, with what the machine was and what else is to be said."""
    facts = ", ".join(f"{name} {value}" for name, value in report.machine.items())
    peers = list(dict.fromkeys(who for one in report.figures for who in one.peer))
    names = [f"{who} (times better)" for who in peers]
    head = ["figure", "unit", "ours", "spread", *names, "limit (reached)", "goal", "met"]
    rule = ["---", "---", "--:", "--:", *("--:" for _ in peers), "--:", "---", "---"]
    rows = [_row(one, peers) for one in report.figures]
    notes = [f"* {one.name}: {one.note}." for one in report.figures if one.note]
    return [f"Machine: {facts}.", "", *map(_line, [head, rule, *rows]), "", *notes]


def _row(one: Figure, peers: Sequence[str]) -> list[str]:
    return [
        one.name,
        one.unit,
        _number(one.ours),
        f"{_number(one.spread[0])} … {_number(one.spread[1])}" if one.repeats > 1 else "",
        *(_beside(one.peer.get(who), one.ratio.get(who)) for who in peers),
        _beside(one.limit, one.ratio.get("limit")),
        one.goal,
        {True: "yes", False: "**no**", None: ""}[one.met],
    ]


def _beside(value: float | None, ratio: float | None) -> str:
    if value is None:
        return ""
    return _number(value) if ratio is None else f"{_number(value)} ({_number(ratio)})"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"
