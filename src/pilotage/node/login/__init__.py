"""The program at a login node: it does there what the hub asks for, and tells what happens.

Frames on standard input and output: a request has a number and the name of an operation, its reply
has the same number. News of jobs are told unasked. It ends with its input.
"""
