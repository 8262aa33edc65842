"""Policies: observations of pools and hints of the queue in, orders with their reasons out.

`Windowed` uses only how well pilots are used; `Hinted` also uses what waits in the queue, as far as
the pilots confirm it. Both are pure: time, observations and memory are arguments.
"""
