"""Pilots: enrolment, leases and data; messages of nodes come in, launches go out.

The matchmaker gets each pilot as a place; reported ends go to the store.
"""
