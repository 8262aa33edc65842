"""Jobs: a definition and a binding come in, states and their journal go out.

`machine` has the states and their order, `retry` decides what follows the end of an attempt.
"""
