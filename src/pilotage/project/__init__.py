"""A project on disk: `pilotage.toml` comes in, its settings, folder and tokens go out.

Every service of the hub and of an agent is given the project that it works for.
"""
