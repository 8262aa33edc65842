"""HTCondor, from 8.8 on: `condor_submit`, `condor_q`, `condor_history` and `condor_rm`."""

from .adapter import HTCondor

__all__ = ["HTCondor"]
