"""Pilots: a node is offered, checked and given work; launches come in, ends go out."""
