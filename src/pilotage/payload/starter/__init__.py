"""Start payloads, monitor them and report how they ended.

A program of its own, so that payloads outlive a crash of the program that ordered them. It is
a package that needs nothing but the standard library of Python 3.9, since it also travels to worker
nodes; `python -I starter --socket FD --lock PATH` runs the folder. One thread waits for
everything; no payload costs more than its process.

Orders and reports are lines of ASCII JSON on a stream socket. Orders: `start` (the fields of a
`Launch`), `stop` (key, message, grace), `ack` (keys), `close`. Reports: `ready` (pid; the lock
is held), `started` (key, pid, time), `ended` (the fields of an `Ending`).
"""
