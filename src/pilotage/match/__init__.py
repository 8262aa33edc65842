"""Matching: queued jobs and places to run come in, claims go out.

Every decision can be explained: why a job waits, and what would change that.
"""
