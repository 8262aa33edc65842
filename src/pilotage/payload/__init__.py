"""Programs that start payloads, here and on nodes: an order comes in, evidence goes out.

They need the standard library of Python 3.9 only. `pilotage.run` and `pilotage.node` start them.
"""
