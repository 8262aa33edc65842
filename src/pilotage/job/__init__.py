"""Jobs: a definition and a binding come in, states and their journal go out.

`model` has the nouns, `machine` the states and what may follow what, `retry` decides what follows
the end of an attempt, `records` and `moves` are the verbs in the store.
"""
