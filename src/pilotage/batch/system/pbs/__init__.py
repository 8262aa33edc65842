"""PBS: PBS Professional, OpenPBS, and Torque, which has the same commands and other options."""

from .adapter import PBS

__all__ = ["PBS"]
