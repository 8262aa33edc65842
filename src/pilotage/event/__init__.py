"""Events: the outside world comes in, `Event`s go out.

`file` watches and scans directories, `timer` keeps time, `http` and `socket` take messages, `job`
turns the ends of jobs into events. Each source remembers durably how far it has come.
"""
