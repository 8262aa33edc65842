"""Shells: commands come in, processes at a site go out, here or behind `ssh`."""
