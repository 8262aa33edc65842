"""Data of attempts: inputs come from the hub once for a node, outputs go back to it."""
