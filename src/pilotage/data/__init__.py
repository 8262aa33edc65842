"""Data of jobs: files and URLs come in, verified copies go out.

`transfer` copies by URL, `stage` by content to sites and back, and `export` serves mounted folders.
"""
