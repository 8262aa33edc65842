"""Data on its way: files and URLs come in, verified copies go out.

`transfer` moves data by URL, `stage` by content to a site and home; `export` serves folders that
jobs mount.
"""
