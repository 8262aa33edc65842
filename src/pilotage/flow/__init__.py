"""Workflows: a definition comes in, orders for sites come out, and ends come back as events.

A *flow* has *steps*, which wait for each other. A step becomes *tasks*: one, or one for each item
of a list that may be known only when the steps before it are done. A task has *attempts*, each at
one site and with a folder of its own; only what the current attempt has left counts.
"""
