"""How COBalD is set up: as its documentation shows, and tuned on the seeds 101, 102 and 103."""

from __future__ import annotations

from typing import Any

DOCUMENTED: dict[str, Any] = {"tree": "joint", "low": 0.9, "high": 0.9, "rate": 1.0}
