"""The program on the worker node: standard library of Python 3.9 only, packed as one file."""
