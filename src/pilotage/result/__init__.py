"""Results: what jobs wrote and what became of them."""
