"""The bus: four verbs between processes that do not know each other.

`publish` sends, `subscribe` receives, `ack` says that a message is dealt with, `request` waits for
the answer. `memory` is the bus within one process.
"""
