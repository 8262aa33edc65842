#!/usr/bin/env python3
"""Print the sizes of our code beside those of code that we learnt from.

A picture, not a gate. Modules are non-empty `.py` files, a line is a line (`wc -l`); functions,
annotations and handlers are counted with `ast`. A broad handler is a bare `except` or one that
catches `Exception` or `BaseException`. The others' rows were counted the same way, in 2026.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Row:
    """One codebase, as it is printed."""

    codebase: str
    modules: str
    lines: str
    p50: str
    p90: str
    max: str
    functions: str
    returns: str
    broad: str
    globals: str
    tests: str


HEADS = Row(
    codebase="codebase",
    modules="modules",
    lines="lines",
    p50="p50",
    p90="p90",
    max="max",
    functions="function p50/90/99",
    returns="returns typed",
    broad="broad except",
    globals="global",
    tests="test:code",
)

#: One line a codebase, in the order of the fields of `Row`.
PEERS = """
    cobald          41   2979   55  137   214    6/20/33   22%     7/38   0  0.55
    starlette       34   6712  145  548   876    5/27/60   98%     7/51   0  1.62
    httpx           23   8827  248  641  2019    9/34/80  100%    10/55   1  1.01
    procrastinate  105   9772   20  274  1042    8/32/88   71%    10/55   0  1.40
    meow_base       35   4926   72  389   519    9/30/73   79%    41/47   0  2.5
    balsam         161  18715   61  265  1443    9/30/66   96%   27/152   3  -
    glideinwms     169  67308  174  960  2950  14/48/173    0%  191/543  55  -
"""


def main() -> None:
    """Print the table."""
    _show([HEADS, measure("pilotage", ROOT / "src", ROOT / "tests"), *_peers()])


def _peers() -> list[Row]:
    return [Row(*line.split()) for line in PEERS.strip().splitlines()]


def measure(name: str, code: Path, tests: Path) -> Row:
    """Count one codebase."""
    sizes = _module_sizes(code)
    nodes = [node for path in sizes for node in ast.walk(ast.parse(path.read_bytes()))]
    functions = [node for node in nodes if isinstance(node, Function)]
    lengths = [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions]
    typed = sum(node.returns is not None for node in functions)
    handlers = [node for node in nodes if isinstance(node, ast.ExceptHandler)]
    total = sum(sizes.values())
    return Row(
        codebase=name,
        modules=str(len(sizes)),
        lines=str(total),
        p50=str(_percentile(sizes.values(), 50)),
        p90=str(_percentile(sizes.values(), 90)),
        max=str(max(sizes.values(), default=0)),
        functions="/".join(str(_percentile(lengths, share)) for share in (50, 90, 99)),
        returns=f"{100 * typed // max(len(functions), 1)}%",
        broad=f"{sum(map(_is_broad, handlers))}/{len(handlers)}",
        globals=str(sum(isinstance(node, ast.Global) for node in nodes)),
        tests=f"{sum(_module_sizes(tests).values()) / max(total, 1):.2f}",
    )


def _module_sizes(folder: Path) -> dict[Path, int]:
    sizes = {path: path.read_bytes().count(b"\n") for path in sorted(folder.rglob("*.py"))}
    return {path: size for path, size in sizes.items() if size}


def _percentile(values: Iterable[int], share: int) -> int:
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) * share // 100] if ordered else 0


def _is_broad(handler: ast.ExceptHandler) -> bool:
    caught = handler.type
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in {"Exception", "BaseException"})
        for kind in kinds
    )


def _show(rows: list[Row]) -> None:
    cells = [[getattr(row, field.name) for field in fields(Row)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *rest in cells:
        numbers = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        print(first.ljust(widths[0]), *numbers, sep="  ")


if __name__ == "__main__":
    main()
