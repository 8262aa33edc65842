"""Programs and configurations written for other systems: theirs come in, ours go out.

Nothing but the command line imports this.
"""
