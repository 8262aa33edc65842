"""The bus without a broker: an agent dials the hub's own port, and verbs are sent as frames.

`bus` and `keys` are the agent's side; `serve` is one connection at the hub, `sites` all of them.
"""
