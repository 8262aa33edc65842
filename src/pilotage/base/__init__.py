"""Helpers for all packages: errors, durable files, safe paths, supervision, TOML with positions.

Each exists once; `node/durable.py` is the counterpart for programs on worker nodes.
"""
