"""The hub: where events, rules, jobs and the site are put together.

`wiring` is the architecture in code; `intake` makes durable jobs of events; `keeper` keeps the
rules in force; `project` is what commands and Python programs hold.
"""
