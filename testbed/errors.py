"""What goes wrong with a test bed."""


class NotUp(Exception):
    """A system did not start, or one of its commands failed; the message says why."""
