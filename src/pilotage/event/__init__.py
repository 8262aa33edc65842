"""Events: files, timers, messages and ends of jobs come in, `Event`s go out.

Each source stores how far it has come, so that after a restart it continues where it stopped.
"""
