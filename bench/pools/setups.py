"""How COBalD is set up: as its documentation shows, and tuned on the seeds 101, 102 and 103."""

from __future__ import annotations

from typing import Any

DOCUMENTED: dict[str, Any] = {"tree": "joint", "low": 0.9, "high": 0.9, "rate": 1.0}

#: The best of about forty set-ups drawn at random in each of the three ways to deploy it, and of
#: the most promising way the second best too, so that each scenario has its own.
TUNED: dict[str, dict[str, Any]] = {
    "COBalD, one tree, linear": {
        "tree": "joint", "low": 0.53, "high": 0.77, "rate": 0.54, "surplus": 654.0,
        "minimum": 40.0, "memory": False,
    },
    "COBalD, by pool, linear": {
        "tree": "pool", "low": 0.636, "high": 0.807, "rate": 0.076, "surplus": 237.0,
        "minimum": 8.0, "memory": False,
    },
    "COBalD, by pool, linear and slow": {
        "tree": "pool", "low": 0.722, "high": 0.977, "rate": 0.022, "surplus": 352.0,
        "minimum": 8.0, "memory": False,
    },
    "COBalD, by pool, relative": {
        "tree": "pool", "law": "relative", "low": 0.72, "high": 0.975, "low_scale": 0.64,
        "high_scale": 2.4, "minimum": 32.0, "memory": False,
    },
}  # fmt: skip
