"""Kinds of transfer, one module each."""
