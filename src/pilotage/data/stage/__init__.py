"""Staging to sites and back: each content once, verified, resumed after an interruption."""
