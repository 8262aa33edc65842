"""The edge service: jobs reach a site that nobody can log in to.

In: messages of the bus, and the files of who runs the site. Out: jobs in the store, each once, and
what became of them as messages, in order. It dials out, and listens to nobody.

`settings` reads `agent.toml`; `accept` decides on a message and `ingest` takes it in; `caps` says
when a job may go on; `prepare` and `data` bring its files and make its command; `tell` and `outbox`
say what became of it; `control` hears who wants it otherwise; `beat` tells how the site is.
"""

#: The settings, in the folder of the agent.
FILE = "agent.toml"
