"""Pictures and pages from plain values: nodes and edges, spans of time, curves, tables.

Callers say what their rules, jobs, flows or pools look like; this package knows none of them.
"""
