"""The contract of batch systems: `words` needs no system, `life` a living one, `beds` runs it."""
