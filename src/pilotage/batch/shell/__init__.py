"""Shells: commands go in, processes at a site come out, be it here or behind `ssh`."""
