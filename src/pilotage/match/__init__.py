"""Matching: queued jobs and places to run come in, claims go out; each with its reasons."""
