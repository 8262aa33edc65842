"""Run a benchmark: `python -m bench rules`; its last line on stdout is one JSON object."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import msgspec

from bench import figure, machine, rules, table
from bench.edge import plan as edge
from bench.figure import Report
from bench.flows import plan as flows
from bench.pilots import plan as pilots
from bench.pools import plan as pools
from bench.queue import plan as queue
from bench.remote import plan as remote
from bench.tasks import plan as tasks

_BENCHES: dict[str, Any] = {
    "edge": edge,
    "flows": flows,
    "pilots": pilots,
    "pools": pools,
    "queue": queue,
    "remote": remote,
    "rules": rules,
    "tasks": tasks,
}


def main() -> int:
    """Do what the command line asks for."""
    options = _parser().parse_args()
    if options.table:
        _show(figure.load(options.name))
        return 0
    bench = _BENCHES[options.name]
    plan = bench.QUICK if options.quick else bench.Plan()
    if options.repeats:
        plan = msgspec.structs.replace(plan, repeats=options.repeats)
    before = machine.load()
    figures = list(bench.figures(plan))
    facts = {**machine.facts(), "load": [before, machine.load()], "quick": options.quick}
    report = Report(options.name, facts, figures)
    if not options.quick:
        print(f"saved {report.save().name}", file=sys.stderr)
    if not options.json:
        _show(report)
    print(msgspec.json.encode(report).decode())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", choices=_BENCHES, help="which benchmark")
    parser.add_argument("--json", action="store_true", help="print nothing but the JSON object")
    parser.add_argument("--quick", action="store_true", help="less of everything; not saved")
    parser.add_argument("--repeats", type=int, default=0, help="how often each thing is measured")
    parser.add_argument(
        "--table", action="store_true", help="print the table of the last run and end"
    )
    return parser


def _show(report: Report) -> None:
    for line in table.lines(report):
        print(line)


if __name__ == "__main__":
    sys.exit(main())
