"""A loop that refines an estimate until it is good enough, and one that never would."""
