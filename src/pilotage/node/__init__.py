"""Programs for nodes: orders of the hub come in, ends, logs and outputs of payloads go out.

Pilot, login helper, batch job and queue of one machine are packed as one file by `pilot.pack`; they
need the standard library of Python 3.9 only.
"""
