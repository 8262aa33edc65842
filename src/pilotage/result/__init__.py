"""Reports of results: rows of jobs come in, stories and HTML pages for people go out."""
