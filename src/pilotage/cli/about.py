"""What the command line says of itself: the overview, help topics and the version."""

from __future__ import annotations
