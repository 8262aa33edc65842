"""Agents of sites: jobs that arrive as messages run at the batch system of the site.

In come messages of a broker or hub, and the settings of the site; out go jobs in the store, each
once, and their statuses and heartbeats as messages. An agent dials out, and opens no port.
"""
