"""The process of an edge service: a hub without a port, whose jobs come from the bus.

`agent` puts its parts together; `keep` starts a part anew that died; `follow` reads its settings
again when they change; `owner` sees to it that a site has one agent; `look` says how it is.
"""
