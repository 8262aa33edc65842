"""Pictures and pages from plain values: nodes and edges, spans of time, curves, tables.

Boxes, bars and numbers come in, SVG, HTML and text go out; rules, jobs and flows are unknown here.
"""
