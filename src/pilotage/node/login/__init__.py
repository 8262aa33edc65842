"""The program at a login node: it serves the hub's requests and reports news of jobs.

Frames on standard input and output: a request has a number and the name of an operation, its reply
has the same number. News of jobs are sent unasked. It ends with its input.
"""
