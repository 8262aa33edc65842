"""The hub: a project comes in, one running process goes out, with its port and its API.

`wiring` connects the parts, `process` runs them, and `project` is the Python interface.
"""
