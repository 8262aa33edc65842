"""The bus without a broker: an agent dials the hub's own port, and the four verbs go as frames.

`model` has the frames, `line` is a connection as who dials has it. `bus` is the agent's end and
`keys` keeps what it proves its site with; `serve` answers one connection at the hub, `sites` is the
hub's end of all of them.
"""
