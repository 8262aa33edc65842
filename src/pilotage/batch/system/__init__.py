"""Batch systems: a `BatchOrder` becomes a command, and its output becomes ids and `BatchItem`s.

Nothing here runs a command: the caller does, here or at the end of a connection, and hands in the
output. So each batch system is one value, `Tools`, of pure functions and patterns in a module of
its name, and all pass one contract. `known` finds them by name, `plugin` those of other packages.
"""
