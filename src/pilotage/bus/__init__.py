"""The bus: messages between hubs, sites and users that may start and stop independently.

In come bodies of messages from outside, strictly decoded; out go typed messages, delivered at least
once by `publish`, `subscribe`, `ack` and `request`.
"""
