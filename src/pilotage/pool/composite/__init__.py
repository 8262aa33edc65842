"""Composites: many pools come in, one goes out."""
