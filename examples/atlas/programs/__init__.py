"""The four programs of the chain; each is one file that needs nothing but Python 3.10."""
