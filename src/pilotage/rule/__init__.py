"""The second stage: an `Event` comes in, definitions of jobs (`JobSpec` and `Binding`) go out.

`book` loads rules, `pattern` finds those that an event matches, `sweep` and `template` say what
each of their jobs is. `judge` and `dryrun` explain, `graph` draws. Everything here is pure, except
that `book` and `python` read files.
"""
