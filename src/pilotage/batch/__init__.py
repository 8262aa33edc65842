"""Batch systems behind SSH: jobs and pilots come in, submissions and how they ended go out.

A site has one connection to a login node; `place` offers its batch queue to the matchmaker.
"""
