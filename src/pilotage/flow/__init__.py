"""Workflows: definitions come in, jobs for their steps go out, and ends come back as events.

A *flow* has *steps* with dependencies. A step becomes *tasks*: one, or one for each item of a list
that may be known only at run time. A task has *attempts*, each a job with its own folder; only the
current one counts.
"""
