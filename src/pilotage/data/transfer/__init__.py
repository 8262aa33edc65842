"""Staging by URL: look at what is there, fetch it, send results.

A kind of transfer (`kind/`) moves bytes and knows what it can do. `fetch` and `send` do what is
the same for all: names are checked, space is looked for, files come to a place aside, are verified,
and get their names; a manifest is sent last. `retrying` decides when to try again, and `Courier`
puts them together.
"""
