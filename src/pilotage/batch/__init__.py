"""Sites: claimed jobs come in, launches and evidence of their ends go out.

`local` runs jobs on this machine; `launch` turns a job into a process to start.
"""
