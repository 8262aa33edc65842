"""A world of providers, drones and jobs in which a law is tried before it runs.

In: a `Scenario` and a seed. Out: `Figures`, and the sentences of each decision.
"""
