"""Discover the facts of this node: the hub's `NodeFacts`.

Everything is read below a root folder, so that tests can show any machine.
"""
