"""Settings as TOML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def write(settings: Mapping[str, Any], *above: str) -> str:
    """Write settings, and tables within them; none of them are in lists."""
    plain = {key: value for key, value in settings.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in settings.items() if isinstance(value, Mapping)}
    lines = [f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in plain.items()]
    head = f"[{'.'.join(map(json.dumps, above))}]\n" if above else ""
    return head + "".join(lines) + "".join(write(tables[key], *above, key) for key in tables)


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with others in their place, table by table; None takes one away."""
    made = dict(old)
    for key, value in new.items():
        if isinstance(value, Mapping) and isinstance(made.get(key), Mapping):
            made[key] = merged(made[key], value)
        else:
            made[key] = value
    return {key: value for key, value in made.items() if value is not None}
