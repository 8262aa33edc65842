"""A project: its hub, its page, its command line and its clock."""
