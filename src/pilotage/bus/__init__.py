"""The bus: four verbs between processes that do not know each other, and what they say.

`port` has the verbs: `publish` sends, `subscribe` receives, `ack` says that a message is dealt
with, `request` waits for the answer. `pilotage.testing.bus` is one within a process, for tests.

`model` has every message to and from a site. `strict` reads JSON from outside, `wire` makes
messages of it, `legacy` those of Balsam's and Argo's definitions, `speech` answers in their words;
`key` says which messages are the same job.
"""
