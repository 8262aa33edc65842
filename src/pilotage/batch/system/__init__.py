"""Batch systems: an `Order` becomes a command, what the command said becomes ids and `Item`s.

Nothing here runs a command: whoever does (here, or at the end of a connection) hands in what was
said. So every adapter is a handful of pure functions, and all pass one contract.
"""
