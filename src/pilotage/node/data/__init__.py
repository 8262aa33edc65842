"""The data of attempts: content comes from the hub once for a node, and what is left goes home."""
