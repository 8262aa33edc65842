"""Real systems on one machine: batch systems, SSH servers and networks, up and down in seconds.

    python -m testbed up slurm sshd

or, in a test, `with Slurm() as cluster: ...`. Each is startable by itself. It needs root and the
packages that tools/apt-packages.txt names. Whatever is started or made is written to a journal
first and undone by a warden, a process that outlives whoever asked for it.
"""
