"""Flux, from 0.50 on: `flux submit`, `flux batch`, `flux jobs` and `flux cancel`."""

from .adapter import Flux

__all__ = ["Flux"]
