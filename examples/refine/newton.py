"""One step of Newton's method, for a polynomial that has traps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def f(x: float) -> float:
    """Return x³ − 2x + 2: its one real root is near −1.77."""
    return x**3 - 2 * x + 2


def slope(x: float) -> float:
    """Return the derivative of `f`."""
    return 3 * x**2 - 2


def refine(*, path: str, finer: str, root: str, tolerance: float) -> None:
    """Write a finer estimate, or the root if the step to it is below the tolerance."""
    x = float(json.loads(Path(path).read_text(encoding="utf-8"))["x"])
    step = f(x) / slope(x)
    found = abs(step) < tolerance
    write(Path(root if found else finer), {"x": x - step, "step": abs(step)})


def write(file: Path, value: dict[str, Any]) -> None:
    """Write JSON under a hidden name, then rename it: nobody sees half of it."""
    hidden = file.with_name(f".{file.name}")
    hidden.write_text(json.dumps(value) + "\n", encoding="utf-8")
    hidden.rename(file)
